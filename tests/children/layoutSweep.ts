/**
 * Damages the layout of a run's directory, one path at a time, and prints how commands take each damage.
 *
 * in   a directory with the run `history`, in which every path of the table exists; the digest of its blob
 * out  a line for each use before it is tried, then a line {path, damage, use, result}. result: `same` as undamaged;
 * `named CODE` for an error; `verdict` if verify or salvage finds the run not sound and names the path; `counted` if
 * verify finds the run sound and counts fewer files; or `wrong` with the text. If a damage kills or blocks the process,
 * the line before it is the last one.
 */
import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { openLog } from '../../replay/log/recordedRun'
import type { Verification } from '../../replay/verify/verification'
import { asError, TroupeError } from '../../runtime/errors'
import { openRun } from '../../runtime/openRun'
import { commandHere } from '../support/commandHere'

const [directory = '', blob = ''] = process.argv.slice(2)
const address = `lmdb:${directory}`
const root = join(directory, 'runs/history')
const home = join(directory, 'home')
process.env.TROUPE_HOME = home
const line = (value: object): void => void process.stdout.write(`${JSON.stringify(value)}\n`)

/** Paths below the run's directory; `..` and `home` are the directory of the runs, and that of caches. */
const paths = [
  ...['..', '', 'log', 'log/data.mdb', 'log/lock.mdb', 'log/writer.heartbeat'],
  ...['blobs', `blobs/${blob.slice(0, 2)}`, `blobs/${blob.slice(0, 2)}/${blob.slice(2)}`],
  ...['checkpoints', 'checkpoints/step-000001', 'checkpoints/step-000002', 'checkpoints/step-000002/manifest.json'],
  ...['checkpoints/step-000002/model.safetensors', 'checkpoints/step-000002/training'],
  ...['weights', 'weights/v000002', 'weights/v000002/manifest.json', 'weights/v000002/model.safetensors'],
  ...['model', 'model/config.json', 'model.json', 'index', 'home/replay', 'home/logs'],
]
const at = (path: string): string => (path.startsWith('home') ? join(directory, path) : join(root, path))

/** Each puts something else in place of what was at the path. */
const damages: Readonly<Record<string, (path: string, wasFile: boolean, aside: string) => void>> = {
  missing: () => {},
  otherKind: (path, wasFile) => (wasFile ? mkdirSync(path) : writeFileSync(path, 'x')),
  empty: (path, wasFile) => (wasFile ? writeFileSync(path, '') : mkdirSync(path)),
  dangling: path => symlinkSync('nowhere/at-all', path),
  fifo: path => linkSync(fifo, path),
  ...(process.getuid?.() === 0 ? {} : { unreadable }),
}
const fifo = join(directory, 'fifo')

function unreadable(path: string, _: boolean, aside: string): void {
  renameSync(aside, path)
  chmodSync(path, 0)
}

const target = join(directory, 'salvaged')
const replay = (...args: readonly string[]) => commandHere(['replay', ...args, '--bus', address, '--json'])
const uses = {
  verify: () => replay('verify', '--run', 'history'),
  show: () => replay('show', 's0001.0000/0', '--run', 'history'),
  ls: () => replay('ls', '--run', 'history'),
  steps: () => replay('steps', '--run', 'history'),
  salvage: () => replay('salvage', 'history', '--to', `lmdb:${target}`),
  resume,
} as const
type Use = keyof typeof uses

/** The uses to try: of the files beside the log, only verify reads all, and salvage copies whatever is there. */
function usesOf(path: string, damage: string): readonly Use[] {
  if (!/^(checkpoints|weights|model|index)/.test(path)) return Object.keys(uses) as Use[]
  return damage === 'fifo' ? ['verify', 'salvage'] : damage === 'otherKind' ? ['verify', 'steps', 'resume'] : ['verify']
}

/** Opens the run as a resume does: for reading, then for writing. */
async function resume(): Promise<{ code: number; stdout: string; stderr: string }> {
  try {
    const recorded = await openLog({ bus: address, run: 'history' })
    await recorded.started().finally(() => recorded.close())
    const { bus } = await openRun(address, 'history', 'write')
    await bus.close()
    return { code: 0, stdout: '', stderr: '' }
  } catch (thrown) {
    const error = asError(thrown)
    const text = error instanceof TroupeError ? `${error.message}\n  code: ${error.code}` : `${error.stack}`
    return { code: 1, stdout: '', stderr: text }
  }
}

async function result(use: Use, path: string, expected: string | undefined): Promise<string> {
  const { code, stdout, stderr } = await uses[use]()
  const text = `${code}\n${stdout.replace(/"seconds":[\d.e-]+/, '')}\n${stderr}`
  const isLeft = existsSync(target)
  rmSync(target, { recursive: true, force: true })
  if (expected === undefined) return text
  if (text === expected) return 'same'
  const wrong = (why: string): string => `wrong: ${why}: ${text.slice(0, 2000)}`
  if (/\n {4}at /.test(text)) return wrong('a stack')
  const named = /code: ((bus|replay|run|blob|cli)\.\w+)/.exec(stderr)?.[1]
  if (named !== undefined) {
    if (!stderr.includes(directory) && !stderr.includes("'history'")) return wrong('no path')
    return isLeft ? wrong('the target is left') : `named ${named}`
  }
  if ((use !== 'verify' && use !== 'salvage') || stdout === '') return wrong('another answer')
  const { ok, problems } = JSON.parse(stdout) as Pick<Verification, 'ok' | 'problems'>
  if (ok) return use === 'verify' ? 'counted' : 'same'
  return problems.some(({ place, message }) => `${place} ${message}`.includes(path)) ? 'verdict' : wrong('no path')
}

async function sweep(): Promise<void> {
  execFileSync('mkfifo', [fifo])
  for (const name of ['replay', 'logs']) mkdirSync(join(home, name), { recursive: true })
  mkdirSync(join(root, 'index'), { recursive: true })
  const log = readFileSync(join(root, 'log/data.mdb'))
  const expected = new Map<string, string>()
  for (const use of Object.keys(uses) as Use[]) expected.set(use, await result(use, '', undefined))
  line({ expected: [...expected] })
  for (const path of paths) {
    const place = at(path)
    const aside = join(directory, 'aside')
    const wasFile = lstatSync(place).isFile()
    for (const [damage, make] of Object.entries(damages)) {
      for (const use of usesOf(path, damage)) {
        renameSync(place, aside)
        make(place, wasFile, aside)
        line({ path, damage, use })
        line({ path, damage, use, result: await result(use, path === '..' ? 'runs' : path, expected.get(use)) })
        if (existsSync(aside)) {
          rmSync(place, { recursive: true, force: true })
          renameSync(aside, place)
        } else chmodSync(place, wasFile ? 0o644 : 0o755)
        mkdirSync(dirname(place), { recursive: true })
        writeFileSync(join(root, 'log/data.mdb'), log)
      }
    }
  }
  line({ done: true })
}

void sweep()
