/** Runs the `troupe` command of this checkout in a process, as a user does, and reads the logs of its runs. */
import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
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
  /** Text that the process has written to stderr so far. */
  said(): string
}

const bin = join(__dirname, '../../cli/bin.js')

/**
 * Starts the command.
 * @param input the whole standard input; default: no standard input
 * @param before words of a command that runs this one; default: none
 */
export function troupe(
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
  cwd?: string,
  input?: string,
  before: readonly string[] = [],
): Running {
  const [program = '', ...words] = [...before, process.execPath, bin, ...args]
  const child = spawn(program, words, {
    ...(cwd === undefined ? {} : { cwd }),
    env: { ...process.env, TROUPE_LOG: 'warn', ...env },
    stdio: [input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
  })
  child.stdin?.on('error', () => {}) // the process may end before it has read its whole input
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

/** Kills the processes that a failed test left running, and waits for their end. */
export async function endAll(started: Running[]): Promise<void> {
  for (const run of started.splice(0)) {
    run.process.kill('SIGKILL')
    await run.done
  }
}

/** Reads the messages of partition 0 of a topic, during or after the run; none while the log is being created. */
export async function messagesOf(directory: string, run: string, topic: TopicName): Promise<Message[]> {
  const log = runDirectory(directory, runId(run)).log
  if (!existsSync(join(log, 'data.mdb'))) return []
  const bus = await openLmdbBus({ directory: log, mode: 'read' }).catch((error: TroupeError) => {
    if (error.code === 'bus.not_a_log') return undefined // the run is creating the log at this moment
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

export const isAlive = (pid: number): boolean => {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    return stat.slice(stat.lastIndexOf(')') + 2)[0] !== 'Z'
  } catch {
    return false
  }
}
