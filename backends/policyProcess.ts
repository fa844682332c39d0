/**
 * Starts a process of troupe_policy (renderer, engine, trainer) and connects a gRPC client to it.
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
import * as grpc from '@grpc/grpc-js'
import { loadSync } from '@grpc/proto-loader'
import { afterAwake } from '../runtime/awakeTimer'
import { asError, TroupeError } from '../runtime/errors'
import { redactSecrets } from '../runtime/knownSecrets'
import { policyDirectory, torchPythonPath } from '../runtime/python'
import { temporaryDirectory } from '../sandbox/temporaryDirectory'
import type { PythonProcess } from './forkServer'
import { startPython } from './pythonProcess'

type PolicyService = 'render' | 'engine' | 'trainer'

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

/** A gRPC client whose methods are called by name; messages have the shapes of policy.proto, in camelCase. */
interface PolicyClient {
  /**
   * Calls a method once. Rejects with the reason of `lost` if the process has ended; with the code and text of an error
   * that the process names; with `<boundary>.lost` (retriable) if the connection broke, `.timeout` (retriable) after
   * `timeoutMs`, `.failed` for any other gRPC error; with the signal's reason if the signal aborts.
   */
  unary<Reply>(method: string, request: object, timeoutMs: number, signal?: AbortSignal): Promise<Reply>
  /**
   * Opens a stream in both directions. The caller must respect the result of `write` and 'drain', and must cancel a
   * stream that it does not end.
   */
  stream<Out, In>(method: string): grpc.ClientDuplexStream<Out, In>
}

type Boundary = 'engine' | 'trainer' | 'codec'

const maxMessageBytes = 256 * 1024 * 1024
const stderrTailChars = 4000
const closeGraceMs = 3_000
/** Longest time of a timer, ms. */
const longestTimerMs = 2 ** 31 - 1
const services = { render: 'Render', engine: 'Engine', trainer: 'Trainer' } as const
const boundaries = { render: 'codec', engine: 'engine', trainer: 'trainer' } as const

/**
 * Starts a process and waits until it serves.
 * @throws TroupeError process.start_failed if it ends or reports that it cannot serve (with the end of its stderr);
 * process.start_timeout after `startTimeoutMs`; process.no_python if no Python is found
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
  const stderr = tailOf(child, options.log)
  const lost = new Promise<Error>(resolve => {
    child.once('error', error => resolve(gone(serve, `could not be run: ${error.message}`, stderr())))
    child.once('close', (code, signal) =>
      resolve(gone(serve, signal === null ? `ended with ${code}` : `was ended by ${signal}`, stderr())),
    )
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
  const connection = new (clientOf(serve))(socket, grpc.credentials.createInsecure(), {
    'grpc.max_receive_message_length': maxMessageBytes,
    'grpc.max_send_message_length': maxMessageBytes,
    'grpc.keepalive_time_ms': 20_000,
    // A ping may stay unanswered for 60 s, because a trainer with one core may not run its gRPC thread for many
    // seconds.
    'grpc.keepalive_timeout_ms': 60_000,
  })
  let closing: Promise<void> | undefined
  return {
    client: clientFor(connection, boundaries[serve], lost),
    pid: child.pid!,
    lost,
    close() {
      closing ??= (async () => {
        connection.close()
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

function tailOf(child: PythonProcess, log: PolicyProcessOptions['log']): () => string {
  let tail = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    tail = redactSecrets(tail + text).slice(-stderrTailChars)
    log?.debug({ pid: child.pid, text: text.trimEnd() }, 'stderr of a policy process')
  })
  return () => tail.trimEnd()
}

const clients = new Map<PolicyService, grpc.ServiceClientConstructor>()

function clientOf(serve: PolicyService): grpc.ServiceClientConstructor {
  let found = clients.get(serve)
  if (found === undefined) {
    const definition = loadSync(join(policyDirectory(), 'proto/policy.proto'), {
      longs: Number,
      defaults: true,
      oneofs: true,
    })
    const root = grpc.loadPackageDefinition(definition) as unknown as {
      troupe: { policy: Record<string, grpc.ServiceClientConstructor> }
    }
    found = root.troupe.policy[services[serve]]!
    clients.set(serve, found)
  }
  return found
}

type Callback = (error: grpc.ServiceError | null, reply: unknown) => void
type Method = (request: object, options: grpc.CallOptions, done: Callback) => grpc.ClientUnaryCall

function clientFor(connection: grpc.Client, boundary: Boundary, lost: Promise<Error>): PolicyClient {
  const methods = connection as unknown as Record<string, Method>
  return {
    unary<Reply>(method: string, request: object, timeoutMs: number, signal?: AbortSignal): Promise<Reply> {
      return new Promise((resolve, reject) => {
        if (signal?.aborted) return reject(signal.reason)
        let isLate = false
        const stop = () => call.cancel()
        // A timer is used instead of gRPC's own deadline, which is a time of the wall clock and so may jump.
        const cancelTimer = afterAwake(Math.min(timeoutMs, longestTimerMs), () => {
          isLate = true
          call.cancel()
        })
        const call = methods[method]!(request, {}, (error, reply) => {
          cancelTimer()
          signal?.removeEventListener('abort', stop)
          if (error === null) return resolve(reply as Reply)
          if (isLate) return reject(timedOut(method, timeoutMs, boundary))
          if (signal?.aborted) return reject(signal.reason)
          // A process that died gives its reason on stderr, which arrives a moment after the connection breaks; so wait
          // for it.
          if (error.code !== grpc.status.UNAVAILABLE) return reject(errorOf(error, method, boundary))
          const wait = new Promise<undefined>(done => setTimeout(done, 500, undefined))
          void Promise.race([lost, wait]).then(reason => reject(reason ?? errorOf(error, method, boundary)))
        })
        signal?.addEventListener('abort', stop, { once: true })
      })
    },
    stream: <Out, In>(method: string) =>
      (connection as unknown as Record<string, () => grpc.ClientDuplexStream<Out, In>>)[method]!(),
  }
}

const timedOut = (method: string, timeoutMs: number, boundary: Boundary): TroupeError =>
  new TroupeError(`${boundary}.timeout`, {
    boundary,
    retriable: true,
    message: `${method}: no answer within ${timeoutMs} ms`,
  })

/**
 * Converts a gRPC error. Its details may begin with an error code of Troupe: `trainer.busy: the trainer works on
 * another call`.
 */
function errorOf(error: grpc.ServiceError, method: string, boundary: Boundary): TroupeError {
  const named = /^([a-z]+\.[a-z_]+): (.*)$/s.exec(error.details)
  const unavailable = error.code === grpc.status.UNAVAILABLE
  const isDiskFull = named?.[1]?.endsWith('.disk_full') === true
  const fallback = unavailable ? 'lost' : 'failed'
  return new TroupeError(named?.[1] ?? `${boundary}.${fallback}`, {
    boundary,
    retriable: unavailable || isDiskFull,
    message: named?.[2] ?? `${method}: ${error.details}`,
    cause: error,
  })
}
