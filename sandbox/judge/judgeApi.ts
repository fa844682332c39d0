/**
 * Code Judge's HTTP API over a sandbox (0xWJ/code-judge, app/main.py): routes, tokens, bodies and refusals. The
 * dispatcher runs the submissions.
 *
 * in   GET /ping /status, POST /run /judge with /batch and /long-batch      out  their answers; 422 in FastAPI's form
 * Invariant: every request is answered, unless its connection closes first. The bytes of all bodies and the number of
 * waiting submissions are bounded; a request that would exceed these bounds is refused, without waiting, with 429 or
 * 503 and Retry-After, a body that is too long by itself with 413.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { escapedText } from '../escapedText'
import type { HostCheck } from '../http/hostHeader'
import { type BodyLimits, ByteBudget, readBody } from '../http/requestBody'
import { requestTarget } from '../http/requestTarget'
import { isOfWebPage } from '../http/webPage'
import type { Sandbox } from '../sandbox'
import type { TokenCheck } from './bearerToken'
import { type Client, Dispatcher, type DispatcherLimits } from './dispatcher'
import { batchOf, type Fault, submissionCount, submissionOf } from './submission'
import { type Verdict, withoutStreams } from './verdict'

export interface JudgeLimits extends DispatcherLimits, Omit<BodyLimits, 'firstByteMs'> {
  /** Upper bound on the wait for a worker slot of a submission to /run, /judge or /batch, ms. */
  readonly queueWaitMs: number
  /** Upper bound on the wait for a worker slot of a submission to /long-batch, ms. */
  readonly longQueueWaitMs: number
  /** Upper bound on the bytes of all bodies that are being read, run or answered. */
  readonly maxHeldBytes: number
}

interface Reply {
  readonly status: number
  readonly body: unknown
  readonly headers?: Readonly<Record<string, string>>
}

type Handler = (context: Context) => Promise<Reply> | Reply

interface Context {
  readonly request: IncomingMessage
  readonly gone: AbortSignal
  /** Counts bytes of a body as held; they return to the budget once the answer is sent or the connection closed. */
  hold(bytes: number): void
}

export class JudgeApi {
  readonly #dispatcher: Dispatcher
  readonly #budget: ByteBudget
  readonly #routes: Readonly<Record<string, readonly ['GET' | 'POST', Handler]>>
  #requests = 0
  #draining = false
  #whenIdle: (() => void) | undefined

  constructor(
    private readonly sandbox: Sandbox,
    private readonly limits: JudgeLimits,
    private readonly allowed: TokenCheck | undefined,
    private readonly isOurs: HostCheck,
  ) {
    this.#dispatcher = new Dispatcher(sandbox, limits)
    this.#budget = new ByteBudget(limits.maxHeldBytes)
    const { queueWaitMs, longQueueWaitMs } = limits
    const whole = (verdict: Verdict) => verdict
    this.#routes = {
      '/ping': ['GET', () => ({ status: 200, body: 'pong' })],
      '/status': ['GET', () => ({ status: 200, body: this.#status() })],
      '/run': ['POST', context => this.#single(context, whole)],
      '/run/batch': ['POST', context => this.#batch(context, queueWaitMs, whole)],
      '/run/long-batch': ['POST', context => this.#batch(context, longQueueWaitMs, whole)],
      '/judge': ['POST', context => this.#single(context, withoutStreams)],
      '/judge/batch': ['POST', context => this.#batch(context, queueWaitMs, withoutStreams)],
      '/judge/long-batch': ['POST', context => this.#batch(context, longQueueWaitMs, withoutStreams)],
    }
  }

  /** Promise that resolves once no request is open. */
  get idle(): Promise<void> {
    return new Promise(resolve => {
      if (this.#requests === 0) resolve()
      else this.#whenIdle = resolve
    })
  }

  /** Refuses new requests from now on. */
  drain(): void {
    this.#draining = true
  }

  /** Ends all submissions that have no verdict yet; each is answered `internal_error`. */
  endAll(): void {
    this.#dispatcher.endAll('the server was shut down before this submission was done')
  }

  async serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.#requests++
    const gone = new AbortController()
    let held = 0
    response.once('close', () => {
      if (!response.writableFinished) gone.abort()
      this.#budget.give(held)
      if (--this.#requests === 0) this.#whenIdle?.()
    })
    const hold = (bytes: number) => {
      if (response.closed) this.#budget.give(bytes)
      else held += bytes
    }
    try {
      this.#send(response, await this.#route({ request, gone: gone.signal, hold }))
    } catch (error) {
      this.#send(response, detail(500, `the judge failed: ${(error as Error).message}`))
    }
  }

  async #route(context: Context): Promise<Reply> {
    const { request } = context
    if (!this.isOurs(request.headers.host)) {
      return detail(
        421,
        `this judge does not serve the host ${String(request.headers.host).slice(0, 100)}: see --allow-host`,
      )
    }
    const { path } = requestTarget(request.url)
    const route = Object.hasOwn(this.#routes, path) ? this.#routes[path] : undefined
    if (!route) return detail(404, 'Not Found')
    const [method, handle] = route
    if (request.method !== method) return detail(405, 'Method Not Allowed', { allow: method })
    if (path !== '/ping') {
      if (this.allowed && !this.allowed(request.headers.authorization)) {
        return detail(401, 'Not authenticated: send the token of --token-file as Authorization: Bearer', {
          'www-authenticate': 'Bearer',
        })
      }
      // Without a token, any page that a user visits could run code here.
      if (!this.allowed && isOfWebPage(request.headers)) {
        return detail(403, 'a web page may use a judge with a token only: start it with --token-file')
      }
    }
    if (this.#draining) return detail(503, 'the server is shutting down', { 'retry-after': '10' })
    return handle(context)
  }

  async #single(context: Context, shown: (verdict: Verdict) => unknown): Promise<Reply> {
    const body = await this.#json(context)
    if ('status' in body) return body
    const submission = submissionOf(body.value)
    if ('faults' in submission) return unprocessable(submission.faults)
    const client = clientOf(context.request)
    const refused = this.#refusal(client, 1)
    if (refused) return refused
    const [verdict] = await this.#dispatcher.judge(client, [submission], this.limits.queueWaitMs, context.gone)
    return { status: 200, body: shown(verdict!) }
  }

  async #batch(context: Context, waitMs: number, shown: (verdict: Verdict) => unknown): Promise<Reply> {
    const body = await this.#json(context)
    if ('status' in body) return body
    const client = clientOf(context.request)
    const count = submissionCount(body.value)
    const tooMany = this.#refusal(client, count)
    if (tooMany) return tooMany // A batch that is too long is refused before its submissions are checked.
    const batch = await batchOf(body.value)
    if (!('items' in batch)) return unprocessable(batch)
    // The bounds are checked again, since other requests may have been admitted during batchOf.
    const refused = this.#refusal(client, count)
    if (refused) return refused
    const verdicts = await this.#dispatcher.judge(client, batch.items, waitMs, context.gone)
    return { status: 200, body: { sub_id: batch.subId, results: verdicts.map(shown) } }
  }

  /** Reads and parses a request's body. Returns its value, or the reply that refuses it. */
  async #json({ request, hold }: Context): Promise<Reply | { readonly value: unknown }> {
    const { maxBodyBytes, bodyWaitMs } = this.limits
    const { bytes, taken, refused } = await readBody(request, this.limits, this.#budget)
    hold(taken)
    if (refused === 413) {
      return detail(413, `the body is over the limit of ${maxBodyBytes} bytes: send smaller batches`)
    }
    if (refused === 503) return this.#busy(503, 'the requests in progress hold all bytes that the server allows')
    if (refused === 408) {
      return detail(408, `the body arrives too slowly: less than 64 KiB in ${bodyWaitMs} ms`, { connection: 'close' })
    }
    if (refused) return detail(refused, 'the body ended before it was complete')
    const text = escapedText(bytes)
    try {
      return { value: JSON.parse(text) }
    } catch (error) {
      const message = (error as Error).message
      // For some errors V8 gives the position, for others the surrounding text.
      const at = /at position (\d+)/.exec(message)?.[1] ?? (/end of JSON/.test(message) ? text.length : undefined)
      const loc = at === undefined ? ['body'] : ['body', Number(at)]
      const fault = { type: 'json_invalid', loc, msg: 'JSON decode error', input: {} }
      return unprocessable([{ ...fault, ctx: { error: Buffer.from(message).toString() } }])
    }
  }

  #refusal(client: Client, calls: number): Reply | undefined {
    const overLimit = this.#dispatcher.overLimit(client, calls)
    if (!overLimit) return undefined
    this.#dispatcher.statistics.count('refused', calls)
    const { maxQueuedCalls, maxClientCalls } = this.limits
    return overLimit === 'client'
      ? this.#busy(429, `${calls} more calls would exceed this client's limit of ${maxClientCalls} waiting calls`)
      : this.#busy(503, `${calls} more calls would exceed the server's limit of ${maxQueuedCalls} waiting calls`)
  }

  #busy(status: number, why: string): Reply {
    const { waiting, running } = this.#dispatcher.load
    const seconds = this.#dispatcher.statistics.secondsFor(waiting + running)
    return detail(status, `${why}; try again in ${seconds} s`, { 'retry-after': String(seconds) })
  }

  /** Returns the body of /status. The fields `queue` and `num_workers` are Code Judge's. */
  #status(): unknown {
    const { waiting, running } = this.#dispatcher.load
    const { counts } = this.#dispatcher.statistics
    return {
      queue: waiting,
      num_workers: this.sandbox.lanes,
      level: this.sandbox.level,
      running,
      requests: this.#requests,
      held_bytes: this.#budget.held,
      answered: counts.answered,
      worker_timeouts: counts.timedOut,
      queue_timeouts: counts.queueTimeouts,
      internal_errors: counts.internalErrors,
      dropped: counts.dropped,
      refused: counts.refused,
      queue_wait: {
        p50: this.#dispatcher.statistics.waitMs(0.5) / 1000,
        p99: this.#dispatcher.statistics.waitMs(0.99) / 1000,
      },
    }
  }

  #send(response: ServerResponse, { status, body, headers }: Reply): void {
    if (response.closed || response.headersSent) return
    const bytes = Buffer.from(JSON.stringify(body))
    const close = this.#draining ? { connection: 'close' } : {}
    response.writeHead(status, {
      'content-type': 'application/json',
      'content-length': bytes.length,
      ...close,
      ...headers,
    })
    response.end(bytes)
  }
}

/** Returns an error reply in FastAPI's form. */
function detail(status: number, text: string, headers: Reply['headers'] = {}): Reply {
  return { status, body: { detail: text }, headers }
}

function unprocessable(faults: readonly Fault[]): Reply {
  return { status: 422, body: { detail: faults } }
}

function clientOf({ socket }: IncomingMessage): Client {
  return { address: socket.remoteAddress ?? '', connection: socket }
}
