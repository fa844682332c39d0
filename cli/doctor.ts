/**
 * `troupe doctor`: tries each part of Troupe on this machine and prints which work; with --tree, prints a run's
 * supervision tree.
 */
import { execFileSync } from 'node:child_process'
import { accessSync, constants, existsSync, mkdirSync, mkdtempSync, rmSync, statfsSync } from 'node:fs'
import { cpus, totalmem } from 'node:os'
import { join, resolve } from 'node:path'
import type { Command } from 'commander'
import { codeOptions, environmentOf } from '../actors/tools/codeEnvironment'
import { machineMissing, ociMissing, probeEnvironments } from '../environments'
import { version } from '../package.json'
import { openBus } from '../runtime/bus/open'
import { asError, TroupeError } from '../runtime/errors'
import { isCheckout, packageRoot, pythonPath, torchPythonPath } from '../runtime/python'
import { openSandbox, probeLevels, type Sandbox } from '../sandbox'
import { roomOf } from './io/fitColumns'
import { wrapped } from './io/table'
import { painter } from './io/terminal'
import { withBus, withDirectory } from './options/busOptions'
import { smollm2Directory } from './setupCommand'
import { printTree } from './supervisionTree'

interface Check {
  readonly name: string
  readonly ok: boolean
  readonly says: string
}

export function registerDoctor(program: Command): void {
  const command = program
    .command('doctor')
    .description('check which parts of Troupe work on this machine, or show the supervision tree of a run')
    .option('--json', 'print a JSON line for each check, or for each tree')
    .option('--tree <run>', "print the run's supervision tree, from its log: states, restarts, reasons")
  withDirectory(withBus(command)).action(
    async ({ tree, ...options }: { json?: boolean; tree?: string; bus: string; dir?: string }) => {
      if (tree !== undefined) return printTree({ ...options, tree })
      const paint = painter(process.stdout)
      let failed = 0
      for (const [name, run] of checks) {
        const check = await attempt(name, run)
        if (!check.ok) failed++
        const mark = check.ok ? paint('green', 'ok  ') : paint('red', 'FAIL')
        const line = wrapped(`${mark}  ${name.padEnd(10)}  ${check.says}`, roomOf(process.stdout), 18).join('\n')
        process.stdout.write(`${options.json ? JSON.stringify(check) : line}\n`)
      }
      process.exitCode = failed === 0 ? 0 : 1
    },
  )
}

async function attempt(name: string, run: () => Promise<string> | string): Promise<Check> {
  try {
    return { name, ok: true, says: await run() }
  } catch (thrown) {
    const hint = thrown instanceof TroupeError && thrown.hint !== undefined ? ` (${thrown.hint})` : ''
    return { name, ok: false, says: `${asError(thrown).message}${hint}` }
  }
}

const gib = (bytes: number) => `${(bytes / 2 ** 30).toFixed(1)} GiB`

const checks: readonly (readonly [string, () => Promise<string> | string])[] = [
  ['machine', () => `${cpus().length} × ${cpus()[0]?.model.trim() ?? 'CPU'}, ${gib(totalmem())} of memory`],
  [
    'disk',
    () => {
      const { bavail, bsize } = statfsSync(process.cwd())
      if (bavail * bsize < 2 ** 30)
        throw new Error(`${gib(bavail * bsize)} free on the disk of this directory; a run needs about 1 GiB`)
      return `${gib(bavail * bsize)} free on the disk of this directory`
    },
  ],
  ['node', () => `${process.version}, troupe ${version}`],
  [
    'python',
    () =>
      withoutTorch() ??
      Object.entries(pythonVersions())
        .map(([name, v]) => `${name} ${v}`)
        .join(', '),
  ],
  [
    'sandbox',
    async () => {
      const sandbox = await openSandbox({ ...codeOptions({}), lanes: 1 })
      try {
        const result = await sandbox.run({ id: 'doctor', code: 'print(6 * 7)', timeoutMs: 10_000 })
        if (result.status !== 'ok')
          throw new Error(`a sandbox call ended with the status ${result.status}; expected ok`)
        const imported = await importTime(sandbox)
        const levels = (await probeLevels()).map(({ level, reached, reason }) =>
          reached ? `${level}: works` : `${level}: ${reason?.split('\n')[0]}`,
        )
        const sessions = sandbox.noSessions ?? 'work'
        return `level '${sandbox.level}', a call took ${result.wallMs.toFixed(1)} ms, ${imported} (${levels.join('; ')}; sessions: ${sessions})`
      } finally {
        await sandbox.close()
      }
    },
  ],
  ['environments', environmentsSay],
  // States the limits of the engines that no check on this machine can show.
  ['engines', () => enginesSay],
  [
    'parts',
    () =>
      optionalParts()
        .map(([name, there]) => `${name}: ${there ? 'installed' : `missing (troupe setup ${name})`}`)
        .join('; '),
  ],
  [
    'bus',
    async () => {
      mkdirSync(resolve('.troupe'), { recursive: true })
      accessSync(resolve('.troupe'), constants.W_OK)
      const directory = mkdtempSync(join(resolve('.troupe'), 'doctor-'))
      try {
        const bus = await openBus(`lmdb:${directory}`)
        await bus.createTopics([{ topic: 't', partitions: 1, retentionMs: null }])
        await bus.append([{ topic: 't', key: 'k', headers: {}, value: Buffer.from('v') }])
        const read = await bus.read('t', 0, 0)
        await bus.close()
        if (read.length !== 1) throw new Error('a record that was appended to an lmdb log could not be read back')
        return 'lmdb writes durably here'
      } finally {
        rmSync(directory, { recursive: true, force: true })
      }
    },
  ],
]

/**
 * Runs `import numpy, sympy` in the sandbox, twice. The first call waits until the zygote (the process from which calls
 * are forked) has imported them.
 */
async function importTime(sandbox: Sandbox): Promise<string> {
  const { python, missing } = await environmentOf({})
  const lacks = missing.length === 0 ? '' : `; not installed: ${missing.join(', ')} (${setUpHint})`
  const code = 'import numpy, sympy; print(sympy.factorint(360))'
  const began = performance.now()
  const first = await sandbox.run({ id: 'doctor', code, timeoutMs: 60_000 })
  const ms = performance.now() - began
  if (first.status !== 'ok') return `import numpy, sympy fails in Python ${python}${lacks}`
  const { cpuMs } = await sandbox.run({ id: 'doctor', code, timeoutMs: 60_000 })
  return `import numpy, sympy in Python ${python}: ${ms.toFixed(0)} ms the first time, then ${cpuMs.toFixed(1)} ms of CPU${lacks}`
}

/** Says which drivers of environments can run here, and whether their commands get the filter of system calls. */
function environmentsSay(): string {
  const says = (missing: string | undefined) => (missing === undefined ? 'works' : missing)
  const drivers = `local: ${says(machineMissing())}; oci: ${says(ociMissing())}`
  if (machineMissing() !== undefined) return drivers
  return `${drivers}; filter of system calls: ${probeEnvironments().filter ? 'works' : 'missing, it needs libseccomp 2 (libseccomp.so.2)'}`
}

const setUpHint = isCheckout() ? 'npm run setup' : 'npx troupe setup'

const enginesSay =
  'local: see python; vllm: tested with a real vLLM 0.32; sglang: tested with a real SGLang 0.5.23 on a CPU, without ' +
  'sleep; openai: tested only with a strict fake server, not for training; recorded and simulated: need neither model nor ' +
  'server; recorded is not for training (docs/engines.md)'

/** Lists the optional parts that `troupe setup` can install, and whether each is installed. */
export function optionalParts(): readonly (readonly [name: string, there: boolean])[] {
  const setup = (file: string) => require(join(packageRoot(), 'cli/setup', file))
  const { places } = setup('places') as { places(): unknown }
  const where = places()
  const isDone = (name: string) => (setup(name) as { step(where: unknown): { isDone(): boolean } }).step(where).isDone()
  return [
    ...['environments', 'kafka', 'sglang', 'vllm', 'wandb'].map(name => [name, isDone(name)] as const),
    ['smollm2', existsSync(join(smollm2Directory, 'config.json'))],
  ]
}

const versionsProgram = `
import json, platform, torch, transformers
print(json.dumps({"python": platform.python_version(), "torch": torch.__version__, "transformers": transformers.__version__,
    "cuda": torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no GPU"}))
`

/** Says what works without torch; undefined if torch is installed. @throws if there is no Python at all */
function withoutTorch(): string | undefined {
  pythonPath()
  try {
    torchPythonPath()
    return undefined
  } catch (thrown) {
    return `${asError(thrown).message}; everything that runs no model works (${setUpHint} adds torch)`
  }
}

function pythonVersions(): Record<string, string> {
  const out = execFileSync(pythonPath(), ['-c', versionsProgram], { timeout: 120_000, encoding: 'utf8' })
  return JSON.parse(out) as Record<string, string>
}
