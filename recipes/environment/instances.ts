/**
 * Gets the instances of an environment package's task families from its Python process.
 *
 * in   a package, families with their options, a seed, a count       out  the instances of each family, in their order
 * Invariant: the same request and package version give the same instances. A package that raises, hangs or prints
 * garbage is an error that quotes the package; the error names the family if the package's output does. The process
 * leads a process group of its own and ends with this process; its child processes are killed with it.
 */
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { finished } from 'node:stream/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { z } from 'zod'
import { asError, endedHow, TroupeError } from '../../runtime/errors'
import { killGroup } from '../../runtime/killGroup'
import { environmentsPythonPath, userCodeEnvironment } from '../../runtime/python'
import { outputTail } from '../../runtime/secrets/outputTail'

/** Directory that holds reward.py and troupe_environments; `python -m troupe_environments…` runs in it. */
export const pythonDirectory = join(__dirname, 'python')

interface Family {
  /** Name of the family: a data set, environment or taskset. A request may name one twice, with other options. */
  readonly name: string
  /** Fields of the package's own configuration for the family. */
  readonly options: Readonly<Record<string, unknown>>
}

export interface InstancesRequest {
  readonly package: 'reasoning-gym' | 'verifiers'
  readonly families: readonly Family[]
  readonly split: 'train' | 'eval'
  /**
   * Seed of the request. reasoning-gym: first seed; instance i is made from `seed + i`, so two requests whose seeds
   * differ by `count` or more share no instance. verifiers: seed of the shuffle of the environment's rows.
   */
  readonly seed: number
  /** Number of instances of each family; a family that has fewer returns all of them. */
  readonly count: number
}

export interface Instance {
  readonly family: string
  readonly index: number
  readonly question: string
  /** System prompt of the environment; null if it has none. */
  readonly system: string | null
  /** Data of the instance that the package's reward function needs. */
  readonly entry: Readonly<Record<string, unknown>>
}

const line = z.union([
  z.object({
    position: z.number(),
    family: z.string(),
    index: z.number(),
    question: z.string(),
    system: z.string().nullable(),
    entry: z.record(z.string(), z.unknown()),
  }),
  z.object({ family: z.string(), error: z.string() }),
])

const defaultDeadlineMs = 300_000
/** Milliseconds after the end of the process for which its remaining output is still read. */
const graceMs = 10_000
const stderrGraceMs = 1000
const stderrTailChars = 2000

/**
 * Resolves with the instances, by the position of their family in the request.
 * @throws TroupeError process.no_environments if the packages are not installed; config.bad_environment if the package
 * fails, is late, or has no instance of a family
 */
export async function instancesOf(
  request: InstancesRequest,
  deadlineMs = defaultDeadlineMs,
): Promise<readonly (readonly Instance[])[]> {
  const child = spawn(environmentsPythonPath(), ['-m', 'troupe_environments.instances', String(process.pid)], {
    cwd: pythonDirectory,
    stdio: ['pipe', 'pipe', 'pipe'],
    detached: true,
    env: userCodeEnvironment(),
  })
  const said = outputTail([child.stderr], { chars: stderrTailChars })
  child.stdin.on('error', () => {}) // an error is ignored: 'exit' reports the end of the process
  child.stdin.write(`${JSON.stringify(request)}\n`) // stdin stays open, because the process ends when it closes
  const refuse = (family: string, why: string) =>
    new TroupeError('config.bad_environment', {
      boundary: 'config',
      retriable: false,
      message: `${request.package}: ${family}: ${why}`,
      hint: `check that ${request.package} has these families and takes these options; if time or memory ran out, ask for fewer instances${said() === '' ? '' : `; its stderr: ${said().trim()}`}`,
    })
  const lines = createInterface({ input: child.stdout, crlfDelay: Number.POSITIVE_INFINITY })
  let fault: (() => TroupeError) | undefined
  const late = setTimeout(() => {
    fault = () => refuse('instances', `not made within ${deadlineMs / 1000} s`)
    killGroup(child)
  }, deadlineMs)
  let held: NodeJS.Timeout | undefined
  const ended = new Promise<string | undefined>(done => {
    child.once('error', error => done(error.message))
    // Waits for 'exit', not 'close': a process that the package left behind may hold a pipe open for any time.
    child.once('exit', (code, signal) => done(code === 0 ? undefined : `python ${endedHow(code, signal)}`))
  }).then(how => {
    clearTimeout(late)
    killGroup(child)
    held = setTimeout(() => {
      fault ??= () => refuse('instances', 'a process that the package started still writes after the package ended')
      lines.close()
    }, graceMs)
    return how
  })
  try {
    const found: Instance[][] = request.families.map(() => [])
    for await (const text of lines) {
      if (fault !== undefined) continue
      const read = readLine(text)
      if (read instanceof Error) fault = () => refuse('a line of its output cannot be parsed', read.message)
      else if ('error' in read) fault = () => refuse(read.family, read.error)
      else found[read.position]?.push(read)
    }
    const how = await ended
    const empty = found.findIndex(instances => instances.length === 0)
    if (how !== undefined) fault ??= () => refuse('instances', how)
    else if (empty >= 0)
      fault ??= () => refuse(request.families[empty]!.name, 'the package returned no instances of the family')
    if (fault === undefined) return found
    // Waits for stderr, which may arrive after the last line of stdout.
    await Promise.race([finished(child.stderr).catch(() => {}), sleep(stderrGraceMs, undefined, { ref: false })])
    throw fault()
  } finally {
    clearTimeout(held)
    child.stdin.destroy()
    child.stdout.destroy()
    child.stderr.destroy()
  }
}

function readLine(text: string): z.output<typeof line> | Error {
  try {
    return line.parse(JSON.parse(text))
  } catch (thrown) {
    return asError(thrown)
  }
}
