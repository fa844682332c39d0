/**
 * Instances of an environment package's task families, as its Python prints them.
 *
 * in   a package, families with their options, a seed, a count       out  the instances of each family, in their order
 * Invariant: the same request and package version give the same instances. A package that raises, hangs or prints
 * garbage is an error that names the family and says what the package said.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { z } from 'zod'
import { asError, TroupeError } from '../../runtime/errors'
import { environmentsDirectory, environmentsPythonPath } from '../../runtime/python'

interface Family {
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
    family: z.string(),
    index: z.number(),
    question: z.string(),
    system: z.string().nullable(),
    entry: z.record(z.string(), z.unknown()),
  }),
  z.object({ family: z.string(), error: z.string() }),
])

const deadlineMs = 300_000
const stderrTailChars = 2000

/** @throws TroupeError process.no_environments, config.bad_environment */
export async function instancesOf(request: InstancesRequest): Promise<ReadonlyMap<string, readonly Instance[]>> {
  const child = spawn(environmentsPythonPath(), ['-m', 'troupe_environments.instances'], {
    cwd: environmentsDirectory(),
    stdio: ['pipe', 'pipe', 'pipe'],
    timeout: deadlineMs,
    killSignal: 'SIGKILL',
    env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1' },
  })
  let said = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(-stderrTailChars)
  })
  child.stdin.on('error', () => {}) // its end is reported by 'close'
  child.stdin.end(JSON.stringify(request))
  const closed = once(child, 'close') as Promise<[number | null, NodeJS.Signals | null]>
  const refuse = (family: string, why: string) =>
    new TroupeError('config.bad_environment', {
      boundary: 'config',
      retriable: false,
      message: `${request.package}: ${family}: ${why}`,
      hint: `name families that ${request.package} has, with options that they take${said === '' ? '' : `; it said: ${said.trim()}`}`,
    })
  const found = new Map<string, Instance[]>(request.families.map(({ name }) => [name, []]))
  let fault: Error | undefined
  for await (const text of createInterface({ input: child.stdout, crlfDelay: Number.POSITIVE_INFINITY })) {
    if (fault !== undefined) continue
    const read = readLine(text)
    if (read instanceof Error) fault = refuse('a line cannot be read', read.message)
    else if ('error' in read) fault = refuse(read.family, read.error)
    else found.get(read.family)?.push(read)
  }
  const [code, signal] = await closed
  if (fault !== undefined) throw fault
  if (signal !== null) throw refuse('instances', `not made within ${deadlineMs / 1000} s, or ended by ${signal}`)
  if (code !== 0) throw refuse('instances', `python ended with ${code}`)
  const empty = [...found].find(([, instances]) => instances.length === 0)
  if (empty !== undefined) throw refuse(empty[0], 'has no instances')
  return found
}

function readLine(text: string): z.output<typeof line> | Error {
  try {
    return line.parse(JSON.parse(text))
  } catch (thrown) {
    return asError(thrown)
  }
}
