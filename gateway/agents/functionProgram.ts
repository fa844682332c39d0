/**
 * Runs a recipe's Python function as agents: one process imports its file once, and forks a process for each rollout.
 *
 * in   a rollout's directory, environment and deadline
 * out  how its process ended, and its output; agent.function_not_loaded if the file cannot be imported
 * Invariant: as in agentProgram.ts, the processes that a call leaves are killed before its result is given. The
 * importing process is started at the first call. If it dies, its running calls are reported as killed by SIGKILL, and
 * the next call starts another one.
 */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { closeSync, openSync, readSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterOn, type Effects } from '../../runtime/effects'
import { endedHow, TroupeError } from '../../runtime/errors'
import { redactSecrets } from '../../runtime/secrets/knownSecrets'
import { outputTail } from '../../runtime/secrets/outputTail'
import { MARK } from '../../sandbox/freshProcess/killProcesses'
import { lastLine, type ProgramEnding, type ProgramOptions } from './agentProgram'
import { killMarked } from './killMarked'

export interface FunctionOptions {
  readonly file: string
  readonly name: string
  readonly interpreter: string
  readonly memoryMb: number
  /** Environment variables of the process that imports the file. */
  readonly env: Readonly<Record<string, string>>
  readonly fx: Effects
}

export interface FunctionProgram {
  run(options: Omit<ProgramOptions, 'command' | 'fx' | 'memoryMb'>, signal: AbortSignal): Promise<ProgramEnding>
  close(): void
}

type Ended = Pick<ProgramEnding, 'code' | 'signal'>

interface Call {
  readonly mark: string
  pid: number
  end(ended: Ended): void
}

interface Importer {
  readonly child: ChildProcessWithoutNullStreams
  readonly calls: Map<string, Call>
  readonly ready: Promise<void>
}

const script = join(__dirname, 'python/functions.py')
const tailBytes = 4000
const slackBytes = 4096

export function functionProgram({ file, name, interpreter, memoryMb, env, fx }: FunctionOptions): FunctionProgram {
  let importer: Importer | undefined

  function start(): Importer {
    const child = spawn(interpreter, [script, String(process.pid), String(memoryMb), file, name], { env: { ...env } })
    const calls = new Map<string, Call>()
    const said = outputTail([child.stderr], { chars: tailBytes })
    child.stdin.on('error', () => {})
    const ready = new Promise<void>((resolve, reject) => {
      createInterface({ input: child.stdout }).on('line', line => {
        const answer = JSON.parse(line) as { ready?: true; id: string; pid?: number; code?: number; signal?: string }
        if (answer.ready) return resolve()
        const call = calls.get(answer.id)
        if (call === undefined) return
        if (answer.pid === undefined) call.end({ code: answer.code ?? null, signal: answer.signal ?? null })
        else call.pid = answer.pid
      })
      const over = (why: string) => {
        if (importer?.child === child) importer = undefined
        reject(notImported(`${name} of ${file}`, why))
        for (const call of calls.values()) call.end({ code: null, signal: 'SIGKILL' })
      }
      child.once('error', cause => over(`${interpreter} does not start: ${cause.message}`))
      child.once('close', (code, signal) => {
        const last = lastLine(said())
        over(`its process ${endedHow(code, signal)}${last === '' ? '' : `: ${last}`}`)
      })
    })
    ready.catch(() => {})
    return { child, calls, ready }
  }

  return {
    async run({ directory, env: own, deadlineMs, logBytes }, signal) {
      importer ??= start()
      const { child, calls, ready } = importer
      await ready
      const id = fx.unique()
      const output = join(directory, '..', 'output')
      let how: ProgramEnding['how'] | undefined
      const ended = await new Promise<Ended>(resolve => {
        const call: Call = { mark: id, pid: 0, end: resolve }
        calls.set(id, call)
        const kill = (why: 'deadline' | 'aborted') => () => {
          how ??= why
          child.stdin.write(`${JSON.stringify({ kill: id })}\n`)
        }
        const onAbort = kill('aborted')
        const cancel = afterOn(fx, deadlineMs, kill('deadline'))
        call.end = one => {
          cancel()
          signal.removeEventListener('abort', onAbort)
          calls.delete(id)
          void killMarked(id, call.pid).then(() => resolve(one))
        }
        child.stdin.write(`${JSON.stringify({ id, directory, output, env: { ...own, [MARK]: id } })}\n`)
        signal.addEventListener('abort', onAbort)
        if (signal.aborted) onAbort()
      })
      const { text, tail, bytes } = readOutput(output, logBytes)
      return {
        ...{ how: how ?? (ended.code === null ? 'signal' : 'exit'), ...ended, output: text, outputBytes: bytes },
        // Both streams go to one file, whose last line is given as that of standard output.
        ...{ lastError: '', lastLine: lastLine(tail) },
      }
    },
    close() {
      importer?.child.stdin.end()
      importer?.child.kill('SIGKILL')
    },
  }
}

/** Reads the beginning and the end of a file that may be large or missing, without known secrets. */
function readOutput(
  path: string,
  most: number,
): { readonly text: string; readonly tail: string; readonly bytes: number } {
  const size = statSync(path, { throwIfNoEntry: false })?.size ?? 0
  if (size === 0) return { text: '', tail: '', bytes: 0 }
  const fd = openSync(path, 'r')
  const read = (from: number, length: number) => {
    const buffer = Buffer.alloc(Math.min(length, size - from))
    return redactSecrets(buffer.subarray(0, readSync(fd, buffer, 0, buffer.length, from)).toString('utf8'))
  }
  try {
    // More is read than is kept, so that no part of a secret is left where the text is cut.
    const text = most === 0 ? '' : read(0, most + slackBytes)
    const tail = read(Math.max(0, size - tailBytes - slackBytes), tailBytes + slackBytes)
    return { text: Buffer.from(text).subarray(0, most).toString('utf8'), tail: tail.slice(-tailBytes), bytes: size }
  } finally {
    closeSync(fd)
  }
}

const notImported = (what: string, said: string) =>
  new TroupeError('agent.function_not_loaded', {
    boundary: 'config',
    retriable: false,
    message: `the agent's function ${what} could not be loaded: ${said}`,
    hint: 'import the file by hand with the interpreter that agent.interpreter names to see the whole error',
  })
