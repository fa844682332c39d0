/**
 * The judge: an HTTP server of Code Judge's API over a sandbox. This file opens and closes it.
 *
 * in   a sandbox, an address, bounds        out  a judge that listens until it is closed
 * Invariant: without a token the judge listens on loopback only. When it closes, open requests are answered first. A
 * request whose body still arrives delays the close until the body is complete or refused (see BodyLimits). A client
 * that does not read its answer delays it by at most 60 s, a connection without a request's headers by one second.
 */
import { constants } from 'node:buffer'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { SandboxError } from '../errors'
import { boundedServer } from '../http/boundedServer'
import { defaultMaxConnections, HEADERS_MS, KEEP_ALIVE_MS } from '../http/connectionLimits'
import { hostCheck } from '../http/hostHeader'
import { type Bounds, checkBounds } from '../integerBounds'
import { CALL_BOUNDS } from '../limits'
import { isLoopback } from '../loopback'
import type { Sandbox } from '../sandbox'
import { tokenCheck } from './bearerToken'
import { JudgeApi, type JudgeLimits } from './judgeApi'
import { checkMath } from './mathProgram'

export interface JudgeOptions extends Partial<JudgeLimits> {
  /** Port to listen on; 0 chooses a free port. Default 8088. */
  readonly port?: number
  /** Address to listen on. Default 127.0.0.1. Any address other than loopback needs a token. */
  readonly host?: string
  /** File with the bearer token that requests must carry. */
  readonly tokenFile?: string
  /** Upper bound on open connections. Default: half the descriptors that this process may open, at most 8192. */
  readonly maxConnections?: number
  /** Milliseconds that a connection may take to send a request's headers. Default 8000. */
  readonly headersMs?: number
  /** Names that requests may carry in their Host header, besides those of loopback. */
  readonly allowedHosts?: readonly string[]
}

type Settings = Required<Omit<JudgeOptions, 'tokenFile' | 'maxConnections' | 'allowedHosts'>>

export interface Judge {
  readonly url: string
  /**
   * Refuses new requests and answers open ones; after `drainMs` (default 0) it ends the remaining submissions, and
   * closes.
   */
  close(drainMs?: number): Promise<void>
}

/**
 * Default options; where Code Judge has the option (app/config.py), its default: a run may take 10 s; Python gets 256 +
 * 128 MB of memory, C++ 256 MB; an answer has at most 1000 characters of each stream. Code Judge gives up a call after
 * 19 s in all, of which the run may take 10 s, so 9 s are left to wait (`queueWaitMs`).
 */
export const JUDGE_DEFAULTS = {
  port: 8088,
  host: '127.0.0.1',
  timeoutMs: 10_000,
  compileMs: 15_000,
  memoryMb: 384,
  cppMemoryMb: 256,
  maxOutputChars: 1000,
  queueWaitMs: 9000,
  longQueueWaitMs: 3_615_000,
  maxBodyBytes: 64 * 1024 * 1024,
  bodyWaitMs: 10_000,
  headersMs: HEADERS_MS,
  maxHeldBytes: 512 * 1024 * 1024,
  maxQueuedCalls: 131_072,
  maxClientCalls: 98_304,
  math: false,
} satisfies Settings

const DAY_MS = 86_400_000
const MAX_CALLS = 10_000_000

/** Bounds of the options. Beyond them the sandbox would reject every call, or this process would run out of memory. */
export const JUDGE_BOUNDS = {
  port: [0, 65_535],
  timeoutMs: CALL_BOUNDS.timeoutMs,
  compileMs: CALL_BOUNDS.timeoutMs,
  memoryMb: CALL_BOUNDS.memoryMb,
  cppMemoryMb: [1, CALL_BOUNDS.memoryMb[1]],
  maxOutputChars: [0, 1_000_000],
  queueWaitMs: [1, DAY_MS],
  longQueueWaitMs: [1, DAY_MS],
  maxBodyBytes: [1, constants.MAX_STRING_LENGTH],
  bodyWaitMs: [1, DAY_MS],
  headersMs: [1, 10_000],
  maxHeldBytes: [1, 2 ** 36],
  maxQueuedCalls: [1, MAX_CALLS],
  maxClientCalls: [1, MAX_CALLS],
  maxConnections: [8, 65_536],
} as const satisfies Readonly<Record<keyof Omit<Settings, 'host' | 'math'> | 'maxConnections', Bounds>>

/**
 * Upper bound on connections that wait to be accepted. A burst of clients connects at once; Node's default of 511 would
 * make some retry.
 */
const BACKLOG = 4096
/**
 * Opens a judge.
 * @throws SandboxError judge.bad_option (a number out of its bounds), judge.unsafe_bind (no token, and not loopback),
 * judge.bad_token (file unreadable or without a token), judge.no_math, judge.cannot_listen
 */
export async function openJudge(sandbox: Sandbox, options: JudgeOptions = {}): Promise<Judge> {
  const { tokenFile, maxConnections = defaultMaxConnections(), allowedHosts = [], ...given } = options
  const settings: Settings = { ...JUDGE_DEFAULTS, ...given }
  const { host, port, math, ...numbers } = settings
  checkBounds('judge.bad_option', { ...numbers, port, maxConnections }, JUDGE_BOUNDS)
  if (!isLoopback(host) && tokenFile === undefined) {
    throw new SandboxError('judge.unsafe_bind', {
      retriable: false,
      message: `the judge runs any code that it is sent, so it needs a token to listen on ${host}`,
      hint: 'give --token-file FILE, or listen on 127.0.0.1',
    })
  }
  if (math) await checkMath(sandbox)
  const allowed = tokenFile === undefined ? undefined : tokenCheck(tokenFile)
  const api = new JudgeApi(sandbox, settings, allowed, hostCheck(host, allowedHosts))
  const bounds = { maxConnections, headersMs: settings.headersMs }
  const server = boundedServer((request, response) => api.serve(request, response), bounds)
  server.keepAliveTimeout = KEEP_ALIVE_MS
  await listening(server, host, port)
  const address = server.address() as AddressInfo
  const name = address.family === 'IPv6' ? `[${address.address}]` : address.address
  let closing: Promise<void> | undefined
  return {
    url: `http://${name}:${address.port}`,
    close: (drainMs = 0) => {
      closing ??= close(server, api, drainMs)
      if (drainMs === 0) api.endAll()
      return closing
    },
  }
}

async function close(server: Server, api: JudgeApi, drainMs: number): Promise<void> {
  const closed = new Promise<void>(resolve => server.close(() => resolve()))
  api.drain()
  server.closeIdleConnections()
  const late = setTimeout(() => api.endAll(), drainMs)
  await api.idle
  clearTimeout(late)
  server.closeIdleConnections()
  // Closes, one second later, the connections that are still open: those on which no complete request has arrived.
  const stalled = setTimeout(() => server.closeAllConnections(), 1000)
  await closed
  clearTimeout(stalled)
}

function listening(server: Server, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (cause: NodeJS.ErrnoException) => {
      const taken = cause.code === 'EADDRINUSE'
      reject(
        new SandboxError('judge.cannot_listen', {
          retriable: taken,
          message: taken
            ? `port ${port} of ${host} is taken`
            : `cannot listen on ${host}, port ${port}: ${cause.message}`,
          hint: 'give another --port or --host',
          cause,
        }),
      )
    })
    server.listen({ host, port, backlog: BACKLOG }, resolve)
  })
}
