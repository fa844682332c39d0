/**
 * Starts a process of troupe_policy (renderer, engine, trainer) and connects a client to it.
 *
 * in   a model directory, options, a deadline for the start
 * out  a client over a Unix socket; a promise of the process's end
 * Invariant: the process ends with this one, even after kill -9 (its stdin is a pipe that we hold, and on Linux the
 * kernel kills it). Its socket lies in a directory that only this user can enter. Restarting it is its supervisor's
 * job.
 */
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { asError, endedHow, TroupeError } from '../runtime/errors'
import { torchPythonPath } from '../runtime/python'
import { outputTail } from '../runtime/secrets/outputTail'
import { temporaryDirectory } from '../sandbox/temporaryDirectory'
import type { PythonProcess } from './forkServer'
import { boundaries, connectPolicy, type PolicyClient, type PolicyService } from './policyClient'
import { startPython } from './pythonProcess'

export interface PolicyProcessOptions {
  readonly serve: PolicyService
  readonly modelDirectory: string
  /** Path of a Jinja file to use instead of the model's own chat template. */
  readonly template?: string
  /** Command-line options of troupe_policy.server: `kvTokens: 4096` becomes `--kv-tokens 4096`, `true` a flag. */
  readonly options?: Readonly<Record<string, string | number | boolean | undefined>>
  readonly python?: string
  /** Variables to set beside those of this process, such as the GPUs that the process may use. */
  readonly env?: Readonly<Record<string, string>>
  readonly startTimeoutMs?: number
  /** Signal that kills the process while it is still starting. */
  readonly signal?: AbortSignal
  readonly log?: { debug(fields: object, text: string): void }
}

export interface PolicyProcess {
  readonly client: PolicyClient
  readonly pid: number
  /** Resolves when the process has ended, with the reason and the end of its stderr. */
  readonly lost: Promise<Error>
  /** Ends the process: SIGTERM, then SIGKILL if it has not ended after 3 s. */
  close(): Promise<void>
}

const stderrTailChars = 4000
const closeGraceMs = 3_000

/**
 * Starts a process and waits until it serves.
 * @throws TroupeError process.start_failed if it ends (with the end of its stderr) or reports why it cannot serve;
 * process.start_timeout after `startTimeoutMs`; process.no_python if no Python is found, process.no_torch if it lacks
 * torch
 */
export async function startPolicyProcess(options: PolicyProcessOptions): Promise<PolicyProcess> {
  const { serve, startTimeoutMs = 180_000 } = options
  const python = options.python ?? torchPythonPath()
  const directory = temporaryDirectory('')
  const socket = `unix:${join(directory, 'socket')}`
  const child = await startPython({
    module: 'troupe_policy.server',
    args: parent => argumentsOf(options, socket, parent),
    // The renderer needs no torch, and torchrun starts the ranks itself; so neither is forked.
    mayFork: serve !== 'render' && Number(options.options?.ranks ?? 1) === 1,
    python,
    ...(options.env !== undefined && Object.keys(options.env).length > 0 && { env: options.env }),
  })
  child.stdin.on('error', () => {}) // an error is ignored: 'error' or 'close' reports the end of the process
  const onLines = (text: string) =>
    options.log?.debug({ pid: child.pid, text: text.trimEnd() }, 'stderr of a policy process')
  const stderr = outputTail([child.stderr], { chars: stderrTailChars, onLines })
  const lost = new Promise<Error>(resolve => {
    child.once('error', error => resolve(gone(serve, `could not be run: ${error.message}`, stderr())))
    child.once('close', (code, signal) => resolve(gone(serve, endedHow(code, signal), stderr())))
  })
  const cleaned = lost.then(() => rm(directory, { recursive: true, force: true }))
  const kill = () => child.kill('SIGKILL')
  if (options.signal?.aborted) kill()
  options.signal?.addEventListener('abort', kill, { once: true })
  try {
    await ready(child, lost, serve, startTimeoutMs)
  } catch (thrown) {
    kill()
    await cleaned
    throw thrown
  } finally {
    options.signal?.removeEventListener('abort', kill)
  }
  // Discards the rest of stdout: only its first line is read, and a full pipe would block the process.
  child.stdout.resume()
  const client = connectPolicy(serve, socket, lost)
  let closing: Promise<void> | undefined
  return {
    client,
    pid: child.pid!,
    lost,
    close() {
      closing ??= (async () => {
        client.close()
        child.kill('SIGTERM')
        const timer = setTimeout(() => child.kill('SIGKILL'), closeGraceMs)
        await cleaned
        clearTimeout(timer)
      })()
      return closing
    },
  }
}

function argumentsOf(options: PolicyProcessOptions, socket: string, parent: number): string[] {
  const { serve, modelDirectory, template } = options
  const list = ['--serve', serve, '--model', modelDirectory, '--socket', socket, '--parent', String(parent)]
  if (template !== undefined) list.push('--template', template)
  for (const [name, value] of Object.entries(options.options ?? {})) {
    if (value === undefined || value === false) continue
    list.push(`--${name.replaceAll(/[A-Z]/g, letter => `-${letter.toLowerCase()}`)}`)
    if (value !== true) list.push(String(value))
  }
  return list
}

/** Matches torchrun's report of a rank that SIGKILL ended. */
const rankKilled = /exitcode\s*: -9\b/

/** Waits for the one line on stdout that says whether the process serves. */
async function ready(
  child: PythonProcess,
  lost: Promise<Error>,
  serve: PolicyService,
  timeoutMs: number,
): Promise<void> {
  const lines = createInterface({ input: child.stdout })
  let timer: NodeJS.Timeout | undefined
  try {
    const line = await Promise.race([
      new Promise<string>(resolve => lines.once('line', resolve)),
      lost.then(error => Promise.reject(error)),
      new Promise<never>((_, reject) => {
        timer = setTimeout(
          () => reject(startError(serve, 'process.start_timeout', `did not start within ${timeoutMs} ms`)),
          timeoutMs,
        )
      }),
    ])
    const said = JSON.parse(line) as { ready: boolean; code?: string; message?: string }
    if (!said.ready) throw startError(serve, 'process.start_failed', `cannot start: ${said.message}`)
  } catch (thrown) {
    if (thrown instanceof TroupeError && thrown.code.startsWith('process.start')) throw thrown
    const message = asError(thrown).message.replace(`the ${serve} process `, '')
    // Retriable if a signal ended the process, or a rank of it: it was killed from outside, so its model may be fine.
    throw startError(serve, 'process.start_failed', message, child.signalCode !== null || rankKilled.test(message))
  } finally {
    clearTimeout(timer)
    lines.close()
  }
}

function startError(serve: PolicyService, code: string, message: string, wasKilled = false): TroupeError {
  const retriable = wasKilled || code === 'process.start_timeout'
  return new TroupeError(code, { boundary: 'process', retriable, message: `the ${serve} process ${message}` })
}

function gone(serve: PolicyService, how: string, stderr: string): Error {
  const boundary = boundaries[serve]
  const tail = stderr === '' ? '' : `; last output on stderr:\n${stderr}`
  return new TroupeError(`${boundary}.lost`, {
    boundary,
    retriable: true,
    message: `the ${serve} process ${how}${tail}`,
  })
}
