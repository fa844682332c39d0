/**
 * A gRPC client of a process of troupe_policy (renderer, engine, trainer).
 *
 * in   the process's service, its socket, the promise of its end
 * out  calls by method name, whose errors are TroupeErrors
 * Invariant: a call that begins after `close` fails with `<boundary>.lost` and leaves no timer behind.
 */
import { join } from 'node:path'
import * as grpc from '@grpc/grpc-js'
import { loadSync } from '@grpc/proto-loader'
import { afterAwake } from '../runtime/awakeTimer'
import { asError, TroupeError } from '../runtime/errors'
import { policyDirectory } from '../runtime/python'

export type PolicyService = 'render' | 'engine' | 'trainer'

/** A gRPC client whose methods are called by name; messages have the shapes of policy.proto, in camelCase. */
export interface PolicyClient {
  /**
   * Calls a method once. Rejects with the reason of `lost` if the process has ended; with the code and text of an error
   * that the process names; with `<boundary>.lost` (retriable) if the connection broke, `.timeout` (retriable) after
   * `timeoutMs`, `.failed` for any other gRPC error; with the signal's reason if the signal aborts.
   */
  unary<Reply>(method: string, request: object, timeoutMs: number, signal?: AbortSignal): Promise<Reply>
  /**
   * Opens a stream in both directions. The caller must respect the result of `write` and 'drain', and must cancel a
   * stream that it does not end. @throws TroupeError `<boundary>.lost` after `close`
   */
  stream<Out, In>(method: string): grpc.ClientDuplexStream<Out, In>
  /** Closes the connection. Calls that wait for an answer fail. */
  close(): void
}

type Boundary = 'engine' | 'trainer' | 'codec'

export const maxMessageBytes = 256 * 1024 * 1024
/** Longest time that a Node.js timer can take, in milliseconds. */
const longestTimerMs = 2 ** 31 - 1
const services = { render: 'Render', engine: 'Engine', trainer: 'Trainer' } as const
export const boundaries = { render: 'codec', engine: 'engine', trainer: 'trainer' } as const

/** Connects to `socket`, a gRPC target such as `unix:/run/socket`; the first call waits until the process answers. */
export function connectPolicy(service: PolicyService, socket: string, lost: Promise<Error>): PolicyClient {
  const connection = new (clientOf(service))(socket, grpc.credentials.createInsecure(), {
    'grpc.max_receive_message_length': maxMessageBytes,
    'grpc.max_send_message_length': maxMessageBytes,
    'grpc.keepalive_time_ms': 20_000,
    // A ping may stay unanswered for 60 s, because a trainer with one core may not run its gRPC thread for many
    // seconds.
    'grpc.keepalive_timeout_ms': 60_000,
  })
  return clientFor(connection, boundaries[service], lost)
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
type UnaryMethod = (request: object, options: grpc.CallOptions, done: Callback) => grpc.ClientUnaryCall

function clientFor(connection: grpc.Client, boundary: Boundary, lost: Promise<Error>): PolicyClient {
  const methods = connection as unknown as Record<string, UnaryMethod>
  const streams = connection as unknown as Record<string, () => grpc.ClientDuplexStream<unknown, unknown>>
  /** Begins a call of `method`; gRPC throws, instead of answering, when the connection has been closed. */
  const begin = <Call>(method: string, call: () => Call): Call => {
    try {
      return call()
    } catch (thrown) {
      throw closedError(method, asError(thrown), boundary)
    }
  }
  return {
    unary<Reply>(method: string, request: object, timeoutMs: number, signal?: AbortSignal): Promise<Reply> {
      return new Promise((resolve, reject) => {
        if (signal?.aborted) return reject(signal.reason)
        let isLate = false
        const call = begin(method, () =>
          methods[method]!(request, {}, (error, reply) => {
            cancelTimer()
            signal?.removeEventListener('abort', stop)
            if (error === null) return resolve(reply as Reply)
            if (isLate) return reject(timedOut(method, timeoutMs, boundary))
            if (signal?.aborted) return reject(signal.reason)
            void failureOf(error, method, boundary, lost).then(reject)
          }),
        )
        const stop = () => call.cancel()
        // A timer is used instead of gRPC's own deadline, which is a time of the wall clock and so may jump.
        const cancelTimer = afterAwake(Math.min(timeoutMs, longestTimerMs), () => {
          isLate = true
          stop()
        })
        signal?.addEventListener('abort', stop, { once: true })
      })
    },
    stream: <Out, In>(method: string) =>
      begin(method, () => streams[method]!()) as unknown as grpc.ClientDuplexStream<Out, In>,
    close: () => connection.close(),
  }
}

const closedError = (method: string, error: Error, boundary: Boundary): TroupeError =>
  new TroupeError(`${boundary}.lost`, {
    boundary,
    retriable: true,
    message: `the call ${method} was made on a closed connection: ${error.message}`,
    cause: error,
  })

/** True if the call failed because its connection ended. CANCELLED: the process ended, or this side cancelled. */
const isBroken = ({ code }: grpc.ServiceError) => code === grpc.status.UNAVAILABLE || code === grpc.status.CANCELLED

/**
 * Returns the error of a call that gRPC ended with `error`. If the connection broke, waits up to 500 ms for `lost`: a
 * process that died gives its reason on stderr, which arrives a moment later.
 */
export async function failureOf(
  error: grpc.ServiceError,
  method: string,
  boundary: Boundary,
  lost: Promise<Error>,
): Promise<Error> {
  if (!isBroken(error)) return errorOf(error, method, boundary)
  const wait = new Promise<undefined>(done => setTimeout(done, 500, undefined))
  return (await Promise.race([lost, wait])) ?? errorOf(error, method, boundary)
}

export const timedOut = (method: string, timeoutMs: number, boundary: Boundary): TroupeError =>
  new TroupeError(`${boundary}.timeout`, {
    boundary,
    retriable: true,
    message: `the Python process did not answer the call ${method} within ${timeoutMs} ms`,
  })

/**
 * Converts a gRPC error. Its details may begin with an error code of Troupe: `trainer.busy: the trainer works on
 * another call`.
 */
function errorOf(error: grpc.ServiceError, method: string, boundary: Boundary): TroupeError {
  const named = /^([a-z]+\.[a-z_]+): (.*)$/s.exec(error.details)
  const isDiskFull = named?.[1]?.endsWith('.disk_full') === true
  const fallback = isBroken(error) ? 'lost' : 'failed'
  if (error.code === grpc.status.UNIMPLEMENTED)
    return new TroupeError(`${boundary}.failed`, {
      boundary,
      retriable: false,
      message: `${method}: the Python process does not know this call: its code is of another version of Troupe`,
      hint: 'run `npx troupe setup`; in a checkout run `npm run setup`, which generates the code of policy.proto again',
      cause: error,
    })
  return new TroupeError(named?.[1] ?? `${boundary}.${fallback}`, {
    boundary,
    retriable: isBroken(error) || isDiskFull,
    message: named?.[2] ?? `${method}: ${error.details}`,
    cause: error,
  })
}
