/**
 * Starts and watches a vLLM or SGLang server for a run, on a free port of 127.0.0.1.
 *
 * in   a command line for a port and a key, a path that answers 200 once the server serves
 * out  its address and key, a promise of its end, how to end it
 * Invariant: the server and every process of its process group end with this process, even after kill -9: a guard
 * process (troupe_policy.server_group) stands between them, which ends the group when its stdin closes.
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process'
import { createServer } from 'node:net'
import type { Readable, Writable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { systemEffects } from '../../../runtime/effects'
import { endedHow, TroupeError } from '../../../runtime/errors'
import { pythonEnvironment, pythonPath } from '../../../runtime/python'
import { generatedKey } from '../../../runtime/secrets/generatedKey'
import { outputTail } from '../../../runtime/secrets/outputTail'
import type { LaunchCommand } from './command'

export interface ServerProcessOptions {
  /** Name of the engine, for errors. */
  readonly name: string
  readonly command: (port: number, token: string) => LaunchCommand
  /** Environment variables that limit the server to its GPUs. */
  readonly env: Readonly<Record<string, string>>
  readonly healthPath: string
  readonly startTimeoutMs: number
  readonly signal: AbortSignal
  readonly log?: { debug(fields: object, text: string): void }
}

export interface ServerProcess {
  readonly url: string
  readonly token: string
  /** Pid of the guard; the server is its child. */
  readonly pid: number
  /** Resolves when the server has ended; the error's message has the reason and the end of the server's output. */
  readonly lost: Promise<Error>
  close(): Promise<void>
}

const outputTailChars = 4000
const pollMs = 250
/** Upper bound on one answer to a health request, in milliseconds. */
const healthMs = 5000
/** Milliseconds that the guard has to end the server before the guard is killed. The guard gives the server 10 s. */
const closeMs = 15_000
/** Upper bound on the wait for the rest of the output of a guard that has ended, in milliseconds. */
const drainMs = 2000

/**
 * Starts the server and waits until it serves.
 * @throws TroupeError process.start_failed if the server ends before it serves (the message has the end of its output),
 * process.start_timeout if it does not serve within `startTimeoutMs`, process.no_python without a set-up; the signal's
 * reason if the signal aborts
 */
export async function startServerProcess(options: ServerProcessOptions): Promise<ServerProcess> {
  const { name, command, env, healthPath, startTimeoutMs, signal, log } = options
  const port = await freePort()
  const token = generatedKey(systemEffects.unique()) // 122 random bits
  const { command: words, env: own } = command(port, token)
  const guard = ['-m', 'troupe_policy.server_group', '--parent', String(process.pid), '--', ...words]
  const child = spawn(pythonPath(), guard, {
    stdio: ['pipe', 'pipe', 'pipe'],
    detached: true, // the guard leads its own process group, so that Ctrl-C does not reach it: this process decides when it ends
    env: pythonEnvironment({ ...own, ...env }),
  })
  child.stdin.on('error', () => {}) // an error is ignored: 'close' reports the end
  const onLines = (text: string) =>
    log?.debug({ pid: child.pid, text: text.trimEnd() }, 'output of an inference server')
  const output = outputTail([child.stdout, child.stderr], { chars: outputTailChars, onLines })
  const lost = new Promise<Error>(resolve => {
    child.once('error', error => resolve(ended(name, `could not be run: ${error.message}`, output())))
    const report = (code: number | null, by: NodeJS.Signals | null) =>
      resolve(ended(name, endedHow(code, by), output()))
    child.once('close', report)
    // A guard that was killed leaves the server's workers, which hold its pipes open; so its end is reported after
    // `drainMs` at the latest.
    child.once('exit', (code, by) => setTimeout(report, drainMs, code, by).unref())
  })
  let closing: Promise<void> | undefined
  const close = () => {
    closing ??= (async () => {
      child.stdin.end()
      const timer = setTimeout(() => child.kill('SIGKILL'), closeMs)
      await lost
      clearTimeout(timer)
    })()
    return closing
  }
  const url = `http://127.0.0.1:${port}`
  let end: Error | undefined
  void lost.then(error => {
    end = error
  })
  const until = systemEffects.elapsed() + startTimeoutMs
  try {
    while (!(await answers(`${url}${healthPath}`, token, signal))) {
      signal.throwIfAborted()
      if (end !== undefined) throw notStarted(name, 'process.start_failed', end.message, wasKilled(child))
      if (systemEffects.elapsed() > until) {
        const what = `did not serve within ${startTimeoutMs} ms; last output:\n${output()}`
        throw notStarted(name, 'process.start_timeout', `the server of ${name} ${what}`, false)
      }
      await Promise.race([sleep(pollMs), lost])
    }
  } catch (thrown) {
    await close()
    throw thrown
  }
  return { url, token, pid: child.pid!, lost, close }
}

const answers = (url: string, token: string, signal: AbortSignal): Promise<boolean> =>
  fetch(url, {
    headers: { authorization: `Bearer ${token}` },
    signal: AbortSignal.any([signal, AbortSignal.timeout(healthMs)]),
  }).then(
    reply => reply.status === 200,
    () => false, // the server is not up yet, or the signal has aborted
  )

type Child = ChildProcessByStdio<Writable, Readable, Readable>

/** True if a signal ended the guard, or if SIGKILL ended the server, after which the guard exits with 128 + 9. */
const wasKilled = ({ signalCode, exitCode }: Child): boolean => signalCode !== null || exitCode === 137

/**
 * Finds a port that is free now. If another program takes it first, the server ends, and its next start gets another
 * port.
 */
async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(0, '127.0.0.1', resolve)
  })
  const { port } = server.address() as { port: number }
  await new Promise(resolve => server.close(resolve))
  return port
}

function ended(name: string, how: string, output: string): Error {
  const tail = output === '' ? '' : `; last output:\n${output}`
  const message = `the server of ${name} ${how}${tail}`
  return new TroupeError('engine.lost', { boundary: 'engine', retriable: true, message })
}

/** Retriable if a signal ended the server: it was killed from outside, so its command may be fine. */
const notStarted = (name: string, code: string, message: string, wasKilled: boolean) =>
  new TroupeError(code, {
    boundary: 'process',
    retriable: wasKilled,
    message,
    hint: `check engine.launch of the recipe; the server of ${name} was started with its command and flags`,
  })
