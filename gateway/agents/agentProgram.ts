/**
 * Runs one program of an agent to its end: starts it, keeps what it writes, and kills the processes that it leaves.
 *
 * in   program, arguments, directory, environment, deadline, limits        out  how it ended, and its output
 * The program has a mark in its environment: a variable with a value of its own, by which its descendants are found.
 * Invariant: before the result is given, the program's process group and the processes with its mark are killed, within
 * the bounds that killMarked.ts names. The first `logBytes` of the output are kept, and all its bytes are counted.
 * No known secret is in the kept output or the last lines.
 */
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { afterOn, type Effects } from '../../runtime/effects'
import { pythonPath } from '../../runtime/python'
import { outputTail } from '../../runtime/secrets/outputTail'
import { MARK, signalTo } from '../../sandbox/freshProcess/killProcesses'
import { killMarked } from './killMarked'

export interface ProgramOptions {
  readonly command: readonly string[]
  readonly directory: string
  readonly env: Readonly<Record<string, string>>
  readonly deadlineMs: number
  readonly memoryMb?: number
  readonly logBytes: number
  readonly fx: Effects
}

export interface ProgramEnding {
  /** Cause of the end: by itself with a code, by a signal, at its deadline, or because `signal` was aborted. */
  readonly how: 'exit' | 'signal' | 'deadline' | 'aborted'
  readonly code: number | null
  readonly signal: string | null
  /** Beginning of standard output and standard error, mixed line by line in the order of arrival. */
  readonly output: string
  readonly outputBytes: number
  /** Last line of standard error that is not empty; '' if there is none. */
  readonly lastError: string
  /** Last line of standard output that is not empty; '' if there is none. */
  readonly lastLine: string
}

const launcher = join(__dirname, 'python/launch.py')
/** Number of characters at the end of each stream in which the last line is looked for. */
const tailChars = 4000

export function runProgram(options: ProgramOptions, signal: AbortSignal): Promise<ProgramEnding> {
  const { command, directory, env, deadlineMs, memoryMb = 0, logBytes, fx } = options
  const mark = fx.unique()
  const child = spawn(pythonPath(), ['-I', '-S', launcher, String(process.pid), String(memoryMb), ...command], {
    cwd: directory,
    env: { ...env, [MARK]: mark },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  })
  const kept: Buffer[] = []
  let keptBytes = 0
  let outputBytes = 0
  const onLines = (text: string) => {
    const part = Buffer.from(text).subarray(0, logBytes - keptBytes)
    if (part.length > 0) kept.push(part)
    keptBytes += part.length
  }
  const [outTail, errorTail] = [child.stdout, child.stderr].map(stream => {
    stream.on('data', (data: Buffer) => {
      outputBytes += data.length
    })
    return outputTail([stream], { chars: tailChars, onLines })
  }) as [() => string, () => string]
  const leader = child.pid ?? 0
  return new Promise((resolve, reject) => {
    let how: ProgramEnding['how'] | undefined
    const end = (why: 'deadline' | 'aborted') => () => {
      how ??= why
      if (leader > 0) signalTo(-leader, 'SIGKILL')
    }
    const onAbort = end('aborted')
    const cancel = afterOn(fx, deadlineMs, end('deadline'))
    signal.addEventListener('abort', onAbort)
    if (signal.aborted) onAbort()
    const over = () => {
      cancel()
      signal.removeEventListener('abort', onAbort)
    }
    // Processes that the program left behind hold its streams open, so they are killed before the streams can end.
    let dead = Promise.resolve()
    child.once('exit', () => {
      dead = killMarked(mark, leader)
    })
    child.once('error', cause => {
      over()
      reject(cause)
    })
    child.once('close', async (code, by) => {
      over()
      await dead
      resolve({
        ...{ how: how ?? (code === null ? 'signal' : 'exit'), code, signal: by },
        ...{ output: Buffer.concat(kept).toString('utf8'), outputBytes },
        ...{ lastError: lastLine(errorTail()), lastLine: lastLine(outTail()) },
      })
    })
  })
}

/**
 * Makes absolute those words of a command that name existing files (the first word only if it has a slash), since the
 * program starts in another directory.
 */
export const withFiles = (command: readonly string[]): readonly string[] =>
  command.map((part, i) => ((i > 0 || part.includes('/')) && existsSync(part) ? resolve(part) : part))

export const lastLine = (text: string): string =>
  text
    .split('\n')
    .map(line => line.trim())
    .findLast(line => line !== '') ?? ''
