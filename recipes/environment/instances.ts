/**
 * Instances of an environment package's task families, as its Python prints them.
 *
 * in   a package, families with their options, a seed, a count       out  the instances of each family, in their order
 * Invariant: the same request and package version give the same instances. A package that raises, hangs or prints
 * garbage is an error that names the family and says what the package said. What it has started ends with it, and is waited
 * for by nobody: its process is the leader of a group of its own, and ends with this one.
 */
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { finished } from 'node:stream/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { z } from 'zod'
import { asError, TroupeError } from '../../runtime/errors'
import { killGroup } from '../../runtime/killGroup'
import { environmentsPythonPath, policyDirectory } from '../../runtime/python'

/** Holds reward.py and troupe_environments, and is where `python -m troupe_environments…` runs. */
export const pythonDirectory = join(__dirname, 'python')

interface Family {
  /** May stand there twice, with other options. */
  readonly name: string
  /** Of the package's own configuration of it. */
  readonly options: Readonly<Record<string, unknown>>
}

export interface InstancesRequest {
  readonly package: 'reasoning-gym' | 'verifiers'
  readonly families: readonly Family[]
  readonly split: 'train' | 'eval'
  /** reasoning-gym makes instance i from `seed + i`: two requests share none if their seeds are further apart than `count`. */
  readonly seed: number
  /** Of each family; one that has fewer gives fewer. */
  readonly count: number
}

export interface Instance {
  readonly family: string
  readonly index: number
  readonly question: string
  /** The environment's own system prompt. */
  readonly system: string | null
  /** What the package's reward needs to know of it. */
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

const usualDeadlineMs = 300_000
/** For what it had written when it ended. */
const graceMs = 10_000
const stderrGraceMs = 1000
const stderrTailChars = 2000

/**
 * Instances by the position of their family in the request.
 * @throws TroupeError process.no_environments, config.bad_environment
 */
export async function instancesOf(
  request: InstancesRequest,
  deadlineMs = usualDeadlineMs,
): Promise<readonly (readonly Instance[])[]> {
  const child = spawn(environmentsPythonPath(), ['-m', 'troupe_environments.instances', String(process.pid)], {
    cwd: pythonDirectory,
    stdio: ['pipe', 'pipe', 'pipe'],
    detached: true,
    env: {
      ...process.env,
      PYTHONPATH: [policyDirectory(), process.env.PYTHONPATH].filter(Boolean).join(':'),
      PYTHONDONTWRITEBYTECODE: '1',
    },
  })
  let said = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(-stderrTailChars)
  })
  child.stdin.on('error', () => {}) // its end is told by 'exit'
  child.stdin.write(`${JSON.stringify(request)}\n`) // open until it ends: stdin is its line of life
  const refuse = (family: string, why: string) =>
    new TroupeError('config.bad_environment', {
      boundary: 'config',
      retriable: false,
      message: `${request.package}: ${family}: ${why}`,
      hint: `name families that ${request.package} has, with options that they take${said === '' ? '' : `; it said: ${said.trim()}`}`,
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
    // Not 'close': what a package has left behind may hold a pipe for as long as it likes.
    child.once('exit', (code, signal) =>
      done(signal !== null ? `python was ended by ${signal}` : code === 0 ? undefined : `python ended with ${code}`),
    )
  }).then(how => {
    clearTimeout(late)
    killGroup(child)
    held = setTimeout(() => {
      fault ??= () => refuse('instances', 'what it has started goes on writing after its end')
      lines.close()
    }, graceMs)
    return how
  })
  try {
    const found: Instance[][] = request.families.map(() => [])
    for await (const text of lines) {
      if (fault !== undefined) continue
      const read = readLine(text)
      if (read instanceof Error) fault = () => refuse('a line cannot be read', read.message)
      else if ('error' in read) fault = () => refuse(read.family, read.error)
      else found[read.position]?.push(read)
    }
    const how = await ended
    const empty = found.findIndex(instances => instances.length === 0)
    if (how !== undefined) fault ??= () => refuse('instances', how)
    else if (empty >= 0) fault ??= () => refuse(request.families[empty]!.name, 'has no instances')
    if (fault === undefined) return found
    // Its last words, which may come after its last line.
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
