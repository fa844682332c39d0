/**
 * Runs requests on an inference server: begins, ends and counts them in one place for every kind of server.
 *
 * in   `generate`, abort, close, the server's end; how this kind of server answers
 * out  generations, or coded errors
 * Invariant: every `generate` settles: with its answer, with the tokens so far when aborted, or with an error, which is
 * `engine.lost` when the server is gone. The tokens of a request that failed before its stop token are attached to its
 * error. A server that answers 429 is asked again for as long as a turn may wait for its first token, and never while
 * the gate is closed.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { EngineId } from '../../../messages/ids'
import type { Effects } from '../../../runtime/effects'
import { asError, TroupeError } from '../../../runtime/errors'
import { type Engine, type EngineCapabilities, type GenerateRequest, type Generation, GenerationLost } from '../engine'
import type { ServerHealth } from './health'
import type { ServerHttp, StreamReply } from './http'
import { garbage, messageOf } from './reply'
import { asFailure, checkRequest, endedByServer, Gate, wanted } from './request'
import { type OnTokens, ServerRun } from './run'

export interface ServerRequestsOptions {
  readonly id: EngineId
  readonly capabilities: EngineCapabilities
  readonly http: ServerHttp
  readonly health: ServerHealth
  readonly fx: Effects
  /**
   * Milliseconds without an event of the stream after which a turn that has begun fails, not counted while the gate is
   * closed. Default: 120 s.
   */
  readonly stallMs: number | undefined
  /** Upper bound on a turn's wait for its first token, in milliseconds. Default: 600 s. */
  readonly firstTokenMs: number | undefined
  /** Upper bound on a load of new weights, in milliseconds. Default: 600 s. */
  readonly weightUpdateMs?: number | undefined
}

/** Request to a server whose answer is a stream: path, body, the error for a refusal, and what may end it. */
export interface ServerQuestion {
  readonly path: string
  readonly body: object
  /** Makes the error for a status other than 200. */
  readonly refused: (status: number, message: string) => Error
  /** Signal that closes the connection. Default: the signal of the generation. */
  readonly signal?: AbortSignal
  /**
   * Returns true if this process may have made the server end the request although its caller still wants it. Default:
   * never.
   */
  readonly mayBeEnded?: () => boolean
}

type Finish = Generation['finish'] | null

const isOfConnection = (error: Error): boolean =>
  error instanceof TroupeError && ['engine.lost', 'engine.timeout'].includes(error.code)

/**
 * Milliseconds before a server that answers 429 without Retry-After is asked again; doubled each time, up to
 * `longestWaitMs`.
 */
const firstWaitMs = 100
const longestWaitMs = 10_000

export class ServerRequests {
  readonly gate: Gate
  readonly id: EngineId
  readonly http: ServerHttp
  /** Upper bound on a load of new weights, in milliseconds. */
  readonly weightUpdateMs: number
  readonly #options: ServerRequestsOptions
  readonly #stallMs: number
  readonly #firstTokenMs: number
  readonly #running = new Map<string, ServerRun>()
  #ended: Error | undefined
  #busySince = 0
  #busyMs = 0

  constructor(options: ServerRequestsOptions) {
    this.#options = options
    this.gate = new Gate(options.fx)
    this.id = options.id
    this.http = options.http
    this.#stallMs = options.stallMs ?? 120_000
    this.#firstTokenMs = options.firstTokenMs ?? 600_000
    this.weightUpdateMs = options.weightUpdateMs ?? 600_000
    void options.health.lost.then(error => {
      this.#ended ??= error
      this.#abortAll(this.#ended)
    })
  }

  get running(): number {
    return this.#running.size
  }

  /** Number of context tokens of all running requests together. */
  get contextTokens(): number {
    return [...this.#running.values()].reduce((sum, { request }) => sum + request.context.length, 0)
  }

  /** Milliseconds during which at least one request ran. */
  get busyMs(): number {
    return this.#busyMs + (this.running === 0 ? 0 : this.#options.fx.elapsed() - this.#busySince)
  }

  /** Makes the engine methods that all kinds of server share. `answer` is called once per request. */
  engine(answer: (run: ServerRun) => Promise<Generation>) {
    return {
      id: this.id,
      capabilities: this.#options.capabilities,
      lost: this.#options.health.lost,
      generate: (request, signal) => this.#generate(answer, request, undefined, signal),
      stream: (request, onTokens, signal) => this.#generate(answer, request, onTokens, signal),
      abort: async requestId => this.#running.get(requestId)?.aborter.abort(wanted),
      // Nothing to do: the server evicts unused KV cache by itself.
      release: async () => {},
      close: async () => this.#close(),
    } satisfies Partial<Engine>
  }

  /** Throws the reason if the server is gone or the engine is closed. */
  mustLive(): void {
    if (this.#ended !== undefined) throw this.#ended
  }

  /**
   * Runs `make`, which changes the server. If it fails and the server turns out to be gone, the reason why it is gone
   * is thrown instead of the failure.
   */
  async change(make: () => Promise<void>): Promise<void> {
    this.mustLive()
    try {
      await make()
    } catch (thrown) {
      throw await this.#why(asError(thrown))
    }
  }

  /**
   * Sends the request and passes each event to `take`, which returns how the generation ended once an event says so; a
   * connection that breaks after that does no harm. The end `aborted` is valid only if the caller ended the request or
   * `mayBeEnded` returns true; a server that ends a request on its own has failed.
   */
  async ask(
    run: ServerRun,
    { path, body, refused, signal = run.aborter.signal, mayBeEnded = () => false }: ServerQuestion,
    take: (line: string) => Finish | Promise<Finish>,
  ): Promise<Generation['finish']> {
    const { url } = this.http
    const ended = run.aborter.signal
    const dog = this.gate.watchdog(this.#stallMs, this.#firstTokenMs, url, error => run.aborter.abort(error))
    let finish: Finish = null
    try {
      const reply = await this.#taken(path, body, signal, ended)
      if (reply.status !== 200) throw refused(reply.status, messageOf(await reply.text()))
      for await (const line of reply.lines) {
        dog.fed()
        finish = (await take(line)) ?? finish
      }
      if (finish === null) throw garbage(url, 'the stream ends before its generation does')
    } catch (thrown) {
      const error = asError(ended.reason ?? thrown)
      const isMissed = finish === null || !isOfConnection(error)
      if (isMissed && ended.reason !== wanted) throw await this.#why(error)
    } finally {
      dog.stop()
    }
    if (finish === null || ended.reason === wanted) return finish ?? 'aborted'
    if (finish !== 'aborted' || (!ended.aborted && mayBeEnded())) return finish
    throw await this.#why(asError(ended.reason ?? endedByServer(url)))
  }

  /**
   * Sends the request, and again while the server is busy (429): the request waits here as it would in the server's
   * queue.
   */
  async #taken(path: string, body: object, signal: AbortSignal, ended: AbortSignal): Promise<StreamReply> {
    const until = this.gate.openMs + this.#firstTokenMs
    for (let waitMs = firstWaitMs; ; waitMs = Math.min(2 * waitMs, longestWaitMs)) {
      const reply = await this.http.stream(path, body, this.#firstTokenMs, signal)
      if (reply.status !== 429) return reply
      const leftMs = until - this.gate.openMs - firstWaitMs
      if (leftMs <= 0) return reply
      const nextMs = Math.min(Math.max(reply.retryAfterMs ?? waitMs, firstWaitMs), leftMs)
      await reply.text()
      // The refused request occupies nothing at the server, so an abort may end this wait at once.
      await sleep(nextMs, undefined, { signal: ended })
      await this.gate.passed(ended)
      ended.throwIfAborted()
    }
  }

  async #generate(
    answer: (run: ServerRun) => Promise<Generation>,
    request: GenerateRequest,
    onTokens: OnTokens,
    signal: AbortSignal | undefined,
  ): Promise<Generation> {
    const { capabilities, fx } = this.#options
    const { requestId } = request
    this.mustLive()
    if (signal?.aborted) throw asError(signal.reason)
    checkRequest(this.id, capabilities, request, this.#running)
    const maxTokens = Math.min(request.maxTokens, capabilities.contextTokens - request.context.length)
    const run = new ServerRun(request, maxTokens, onTokens, what => garbage(this.http.url, what), fx)
    const onAbort = () => run.aborter.abort(wanted)
    signal?.addEventListener('abort', onAbort, { once: true })
    if (this.running === 0) this.#busySince = fx.elapsed()
    this.#running.set(requestId, run)
    try {
      return await answer(run)
    } catch (thrown) {
      // The tokens of an unfinished turn go with the error: another attempt continues from them.
      throw run.tokens.length === 0 || run.isStopped ? thrown : new GenerationLost(asError(thrown), run.taken)
    } finally {
      signal?.removeEventListener('abort', onAbort)
      this.#running.delete(requestId)
      if (this.running === 0) this.#busyMs += fx.elapsed() - this.#busySince
    }
  }

  /**
   * Returns the error to report for a failed request. If the server is gone, that is the reason why it is gone, since
   * it explains the request's error.
   */
  async #why(error: Error): Promise<Error> {
    if (this.#ended !== undefined) return this.#ended
    if (error instanceof TroupeError && !error.retriable) return error
    return (await this.#options.health.check()) ?? asFailure(this.http.url, error)
  }

  #abortAll(reason: unknown): void {
    for (const { aborter } of this.#running.values()) aborter.abort(reason)
  }

  #close(): void {
    const closed = { boundary: 'engine', retriable: true, message: `engine ${this.id} is closed` } as const
    this.#options.health.close()
    this.#ended ??= new TroupeError('engine.lost', closed)
    this.#abortAll(wanted)
    this.http.close()
  }
}
