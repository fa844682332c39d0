/**
 * One process with a user's reward function (troupe_policy.reward.process): one line per question, one per answer.
 *
 * in   how to start the process; one question at a time        out  its answers; how the process ended
 * Invariant: the reward process leads a process group of its own, and `kill` ends the whole group. The reward process
 * ends when this process ends.
 */
import { spawn } from 'node:child_process'
import { resolve } from 'node:path'
import { createInterface } from 'node:readline'
import type { Readable, Writable } from 'node:stream'
import { endedHow } from '../../runtime/errors'
import { killGroup } from '../../runtime/killGroup'
import { pythonPath, userCodeEnvironment } from '../../runtime/python'
import { excerpt } from '../../runtime/secrets/knownSecrets'

export interface RewardLaneOptions {
  readonly file?: string
  readonly module?: string
  readonly function: string
  readonly python?: string
  /** Milliseconds that importing the function may take. Default: 120,000. */
  readonly startTimeoutMs?: number
  readonly onPrinted?: (line: string) => void
}

/** One line that the process writes: its start, or the answer to a question. */
interface RewardLine {
  readonly id?: number
  readonly ready?: boolean
  readonly score?: number
  readonly fault?: string
  readonly why?: string
}

export interface RewardLane {
  /** Resolves with undefined once the function is imported, or with the reason why the import failed. */
  readonly ready: Promise<string | undefined>
  /** Resolves with a description of the end of the process: its exit code or signal, or why it could not be started. */
  readonly ended: Promise<string>
  /** True once a SIGKILL from outside has ended the process (not that of `kill`), often for lack of memory. */
  wasKilled(): boolean
  /** Called with each answer; the owner of the process sets it. */
  onLine: (line: RewardLine) => void
  send(ask: object): void
  kill(): void
}

const printedChars = 500
const tailChars = 500
/** Upper bound on the characters of a reason; the process sends more, and secrets are removed before the cut. */
const whyChars = 500
/** Characters of a line that are read beyond those that are kept, so that no part of a secret is left at the cut. */
const slackChars = 4096

export function startRewardLane(options: RewardLaneOptions): RewardLane {
  const { file, module, startTimeoutMs = 120_000 } = options
  const what = file === undefined ? ['--module', module ?? ''] : ['--file', resolve(file)]
  const args = [...what, '--function', options.function, '--parent', String(process.pid)]
  const child = spawn(options.python ?? pythonPath(), ['-m', 'troupe_policy.reward.process', ...args], {
    stdio: ['pipe', 'pipe', 'pipe', 'pipe', 'pipe'],
    detached: true, // the process leads a process group, so that its child processes are killed with it
    env: userCodeEnvironment(),
  })
  for (const stream of child.stdio) stream?.on('error', () => {}) // an error is ignored: 'close' reports the end of the process
  let tail = ''
  let hasKilled = false
  const print = (line: string) => options.onPrinted?.(line)
  linesOf(child.stdout!, print)
  linesOf(child.stderr!, line => {
    tail = `${tail}\n${line}`.slice(-tailChars)
    print(line)
  })
  // Child processes of the process that ended hold its pipes open, and 'close' would wait for them.
  child.once('exit', () => killGroup(child))
  const ended = new Promise<string>(done => {
    child.once('error', error => done(error.message))
    child.once('close', (code, signal) => done(endedHow(code, signal)))
  })
  const lane: RewardLane = {
    ready: new Promise(done => {
      const timer = setTimeout(() => done(`the function was not imported within ${startTimeoutMs} ms`), startTimeoutMs)
      void ended.then(how =>
        done(`its process ${how} while the function was imported${tail === '' ? '' : `: ${tail.trim()}`}`),
      )
      createInterface({ input: child.stdio[4] as Readable }).on('line', text => {
        const { why: whole, ...line } = JSON.parse(text) as RewardLine
        const why = whole === undefined ? undefined : excerpt(whole, whyChars)
        if (line.ready === undefined) return lane.onLine({ ...line, ...(why === undefined ? {} : { why }) })
        clearTimeout(timer)
        done(line.ready ? undefined : (why ?? 'the function could not be imported'))
      })
      void ended.then(() => clearTimeout(timer))
    }),
    ended,
    wasKilled: () => child.signalCode === 'SIGKILL' && !hasKilled,
    onLine: () => {},
    send: ask => void (child.stdio[3] as Writable).write(`${JSON.stringify(ask)}\n`),
    kill() {
      hasKilled ||= child.signalCode === null
      killGroup(child)
    },
  }
  return lane
}

/** Splits a stream into lines of bounded length. Not readline, which would keep an endless line in memory. */
function linesOf(stream: Readable, take: (line: string) => void): void {
  let held = ''
  stream.setEncoding('utf8').on('data', (text: string) => {
    const lines = (held + text).split('\n')
    held = lines.pop()!.slice(0, printedChars + slackChars)
    for (const line of lines) take(excerpt(line, printedChars))
  })
  stream.on('end', () => {
    if (held !== '') take(excerpt(held, printedChars))
  })
}
