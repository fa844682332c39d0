/**
 * Measures how long `troupe replay` takes on a log of 100,000 trajectories, started as a user starts it.
 *
 * The benchmark first writes the log (a million facts, half a gigabyte). Times are of whole commands, start of Node
 * included; for `show` without --at the start-up time is subtracted. The index has its own directory, so the first `ls`
 * builds it and the later commands find it.
 */
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { runId } from '../messages/ids'
import { memoryBlobs } from '../runtime/bus/blobs'
import { openLmdbBus } from '../runtime/bus/lmdb/lmdbBus'
import { endedHow } from '../runtime/errors'
import { openJournal } from '../runtime/journal/openJournal'
import { runDirectory } from '../runtime/runDirectory'
import { atLeast, atMost, type BenchReport, describeMachine, median, printReport } from './report'
import { type ManyTrajectories, writeManyTrajectories } from './support/manyTrajectories'

const run = runId('many')
const many: ManyTrajectories = { steps: 125, groups: 50, groupSize: 16 }
const partitions = 4
const repeats = 5
const commandMs = 300_000

const root = join(__dirname, __filename.endsWith('.ts') ? '..' : '../..')
const fromCheckout = [join(root, 'cli/bin.js')]
const builtMain = join(root, 'dist/cli/main.js')
/** Node arguments that start the command the way bin.js does in a package. */
const fromBuild = ['-e', `require(${JSON.stringify(builtMain)}).main(process.argv.slice(1))`, '--']

interface Ran {
  readonly seconds: number
  readonly stdout: string
}

function troupe(how: readonly string[], args: readonly string[], home: string): Promise<Ran> {
  const began = performance.now()
  const child = spawn(process.execPath, [...how, ...args], {
    env: { ...process.env, TROUPE_HOME: home, TROUPE_BUS: '' },
    stdio: ['ignore', 'pipe', 'pipe'],
    signal: AbortSignal.timeout(commandMs),
  })
  let stdout = ''
  let stderr = ''
  child.stderr.on('data', chunk => {
    stderr += chunk
  })
  child.stdout.on('data', chunk => {
    stdout += chunk
  })
  return new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code, signal) => {
      const seconds = (performance.now() - began) / 1000
      if (code === 0) resolve({ seconds, stdout })
      else reject(new Error(`troupe ${args.join(' ')} ${endedHow(code, signal)}: ${stderr}`))
    })
  })
}

async function write(directory: string): Promise<{ trajectories: number; facts: number }> {
  const { log } = runDirectory(directory, run)
  mkdirSync(log, { recursive: true })
  const bus = await openLmdbBus({ directory: log, mode: 'write' })
  const journal = openJournal(bus, memoryBlobs(), run)
  await journal.create(partitions)
  const written = await writeManyTrajectories(journal, many)
  await bus.close()
  return written
}

export async function bench(): Promise<BenchReport> {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-bench-replay-'))
  const home = join(directory, 'home')
  const over = (...args: readonly string[]) => ['replay', ...args, '--bus', `lmdb:${directory}`]
  const seconds = async (how: readonly string[], args: readonly string[]): Promise<number> => {
    const all: number[] = []
    for (let i = 0; i < repeats; i++) all.push((await troupe(how, args, home)).seconds)
    return median(all)
  }
  try {
    const began = performance.now()
    const written = await write(directory)
    const writeSeconds = (performance.now() - began) / 1000
    const start = await seconds(fromCheckout, ['replay', 'run', '--help'])
    const showStart = await seconds(fromCheckout, ['replay', 'show', '--help'])
    const first = await troupe(fromCheckout, over('ls', '--limit', '50'), home)
    const ls = await seconds(fromCheckout, over('ls', '--limit', '50'))
    const lsAll = await seconds(fromCheckout, over('ls', '--json', '--limit', '1000000'))
    const filtered = await seconds(fromCheckout, over('ls', '--tool-errors', '--reward', '>0', '--step', '77'))
    const at = ['--at', 'trajectories:1:120000']
    const lsPast = await seconds(fromCheckout, over('ls', '--limit', '50', ...at))
    const showPast = await seconds(fromCheckout, over('show', 's0030.0007/3', ...at))
    const show = (await seconds(fromCheckout, over('show', 's0100.0007/3'))) - showStart
    const showPart = (await seconds(fromCheckout, over('show', '0100.0007/3'))) - showStart
    const verified = JSON.parse((await troupe(fromCheckout, over('verify', '--json'), home)).stdout) as {
      readonly facts: number
      readonly seconds: number
    }
    const built = existsSync(builtMain) ? await seconds(fromBuild, ['replay', 'run', '--help']) : undefined
    if (built === undefined)
      process.stderr.write('dist/ is missing, so the start of a build is not measured; run npm run build\n')
    return {
      bench: 'replay',
      machine: describeMachine(),
      metrics: {
        ...written,
        writeSeconds,
        'ls that makes the index, seconds': first.seconds,
        'ls --json of all, seconds': lsAll,
        'ls filtered, seconds': filtered,
        'ls --at, in the middle of the log, seconds': lsPast,
        'show --at, seconds': showPast,
        'verify, seconds': verified.seconds,
      },
      budgets: [
        atLeast('trajectories in the log', written.trajectories, 100_000),
        atMost('ls, seconds', ls, 2),
        atMost('show by its id, seconds after the start', show, 0.3),
        atMost('show by a part of its id, seconds after the start', showPart, 0.3),
        atLeast('verify, facts a second', verified.facts / verified.seconds, 20_000),
        atMost('start from a checkout, seconds', start, 0.7),
        ...(built === undefined ? [] : [atMost('start of a build, seconds', built, 0.3)]),
      ],
    }
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

if (require.main === module) {
  void bench().then(report => {
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
