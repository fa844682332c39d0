/** The `troupe` command as a user runs it, from the checkout, and a reader of what it left in a run's log. */
import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Message, TopicName } from '../../messages'
import { runId } from '../../messages/ids'
import { memoryBlobs } from '../../runtime/bus/blobs'
import { openLmdbBus } from '../../runtime/bus/lmdb/lmdbBus'
import type { TroupeError } from '../../runtime/errors'
import { openJournal } from '../../runtime/journal/openJournal'
import { runDirectory } from '../../runtime/runDirectory'

export interface Finished {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
}

export interface Running {
  readonly process: ChildProcess
  readonly done: Promise<Finished>
  /** What it has written to stderr so far. */
  said(): string
}

const bin = join(__dirname, '../../cli/bin.js')

/** @param input all of its standard input; default: none */
export function troupe(args: readonly string[], env: NodeJS.ProcessEnv = {}, cwd?: string, input?: string): Running {
  const child = spawn(process.execPath, [bin, ...args], {
    ...(cwd === undefined ? {} : { cwd }),
    env: { ...process.env, TROUPE_LOG: 'warn', ...env },
    stdio: [input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
  })
  child.stdin?.on('error', () => {}) // it may end before it has read all
  child.stdin?.end(input)
  let stdout = ''
  let stderr = ''
  child.stdout!.on('data', chunk => {
    stdout += chunk
  })
  child.stderr!.on('data', chunk => {
    stderr += chunk
  })
  const done = new Promise<Finished>(resolve => {
    child.on('close', (code, signal) => resolve({ code, signal, stdout, stderr }))
  })
  return { process: child, done, said: () => stderr }
}

/** Kills those that a failed test left behind. */
export async function endAll(started: Running[]): Promise<void> {
  for (const run of started.splice(0)) {
    run.process.kill('SIGKILL')
    await run.done
  }
}

/** All messages of a run's topic, partition 0, while or after it runs. */
export async function messagesOf(directory: string, run: string, topic: TopicName): Promise<Message[]> {
  const log = runDirectory(directory, runId(run)).log
  if (!existsSync(join(log, 'data.mdb'))) return []
  const bus = await openLmdbBus({ directory: log, mode: 'read' }).catch((error: TroupeError) => {
    if (error.code === 'bus.not_a_log') return undefined // it is being made at this moment
    throw error
  })
  if (bus === undefined) return []
  try {
    const journal = openJournal(bus, memoryBlobs(), runId(run))
    if ((await bus.listTopics()).length === 0) return []
    const { oldest, next } = await journal.offsets(topic, 0)
    const messages: Message[] = []
    for await (const entries of journal.readTo(topic, 0, oldest, next)) {
      messages.push(...entries.map(e => e.message))
    }
    return messages
  } finally {
    await bus.close()
  }
}

/** Processes that descend from one, while it lives. */
export function descendantsOf(pid: number): number[] {
  const parents = new Map<number, number>()
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue
    try {
      const stat = readFileSync(`/proc/${name}/stat`, 'utf8')
      parents.set(Number(name), Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]))
    } catch {
      // It ended between the listing and the reading.
    }
  }
  const found = [pid]
  for (const parent of found) for (const [child, of] of parents) if (of === parent) found.push(child)
  return found.slice(1)
}

export const isAlive = (pid: number): boolean => {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    return stat.slice(stat.lastIndexOf(')') + 2)[0] !== 'Z'
  } catch {
    return false
  }
}
