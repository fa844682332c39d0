/**
 * Rules for requests to an engine: why a request is refused; for an inference server such as vLLM or SGLang also why it
 * failed, and when it must wait.
 *
 * in   requests, pauses        out  coded errors; a gate that is closed while the server loads whole weights or sleeps
 * Invariant: a request that cannot fit never reaches a server. While the gate is closed, the watchdog's timeouts for
 * the first token and between tokens stand still; the deadline for the reply's status does not.
 */
import type { EngineId } from '../../../messages/ids'
import type { Effects } from '../../../runtime/effects'
import { asError, TroupeError } from '../../../runtime/errors'
import type { EngineCapabilities, GenerateRequest } from '../engine'
import { keyHint, wantsKey } from './reply'

/** Abort reason of a request that its caller, or `close`, ended on purpose; so no error is reported. */
export const wanted = Symbol('wanted')

/**
 * Checks a request before it is sent. `running`: requests by id. @throws TroupeError engine.context_exceeded if the
 * context leaves no room for an answer; engine.bad_request if its id is running already, its context is empty, or a
 * token is outside the vocabulary
 */
export function checkRequest(
  id: EngineId,
  { contextTokens, kvTokens, vocabulary }: EngineCapabilities,
  { requestId, context }: GenerateRequest,
  running: ReadonlyMap<string, unknown>,
): void {
  if (running.has(requestId)) throw badRequest(`request ${requestId} is already running on ${id}`)
  const room = Math.min(contextTokens, kvTokens)
  if (context.length >= room) {
    throw new TroupeError('engine.context_exceeded', {
      boundary: 'engine',
      retriable: false,
      message: `engine ${id}: a context of ${context.length} tokens leaves no room for an answer: the engine's context has ${contextTokens} tokens and its KV cache ${kvTokens}`,
      hint: 'lower limits.contextTokens, or give the engine a longer context and more KV cache',
    })
  }
  const foreign = context.find(token => token < 0 || token >= vocabulary)
  if (context.length === 0 || foreign !== undefined) {
    throw badRequest(
      context.length === 0
        ? `engine ${id}: the context has no tokens`
        : `engine ${id}: token id ${foreign} is outside the vocabulary of ${vocabulary}`,
    )
  }
}

/** Error for a request to an engine that this process has closed. */
export const closedEngine = (id: EngineId): TroupeError =>
  new TroupeError('engine.lost', { boundary: 'engine', retriable: true, message: `engine ${id} is closed` })

export const badRequest = (message: string): TroupeError =>
  new TroupeError('engine.bad_request', { boundary: 'engine', retriable: false, message })

/**
 * Error for a request that the server answered with an error status: engine.context_exceeded for 400 with a message
 * that matches `tooLong`, else engine.failed.
 */
export function refused(url: string, status: number, message: string, tooLong: RegExp): TroupeError {
  const code = status === 400 && tooLong.test(message) ? 'engine.context_exceeded' : 'engine.failed'
  const hint = wantsKey(status) ? keyHint : undefined
  return new TroupeError(code, {
    boundary: 'engine',
    // Retrying helps with an overloaded or failing server, but not with a refused request.
    retriable: status >= 500 || status === 429,
    message: `${url} says ${status}: ${message}`,
    ...(hint === undefined ? {} : { hint }),
  })
}

/**
 * Returns the error for a request that failed although the server is not declared lost. `engine.lost`, and errors that
 * are no TroupeError, become `engine.failed`; any other TroupeError is returned as it is.
 */
export function asFailure(url: string, error: Error): Error {
  if (error instanceof TroupeError && error.code !== 'engine.lost') return error
  return new TroupeError('engine.failed', {
    boundary: 'engine',
    retriable: true,
    message: `a request to ${url} broke off, but the server is alive: ${error.message}`,
    cause: error,
  })
}

/** Error for a request that the server reports as aborted, though this process did not abort it. */
export const endedByServer = (url: string): TroupeError =>
  new TroupeError('engine.failed', {
    boundary: 'engine',
    retriable: true,
    message: `the server at ${url} ended the request, although this process did not abort it`,
    hint: 'check its log: another client may abort requests, or the server has no room for them',
  })

/**
 * A gate that is closed while the server is paused. Requests that call `passed` wait before it (SGLang's do; vLLM holds
 * new requests by itself), and the watchdog's timeouts stand still.
 */
export class Gate {
  #closers = 0
  #closings = 0
  #closedAt = 0
  #closedMs = 0
  readonly #fx: Effects
  readonly #waiting = new Set<() => void>()

  constructor(fx: Effects) {
    this.#fx = fx
  }

  /** Number of calls of `close` so far. */
  get closings(): number {
    return this.#closings
  }

  get closed(): boolean {
    return this.#closers > 0
  }

  /** Clock in milliseconds that stands still while the gate is closed; only differences of its times have a meaning. */
  get openMs(): number {
    return (this.closed ? this.#closedAt : this.#fx.elapsed()) - this.#closedMs
  }

  /**
   * Closes the gate. Returns a function that withdraws this closing; further calls of it do nothing. The gate opens
   * when every closing is withdrawn.
   */
  close(): () => void {
    if (!this.closed) this.#closedAt = this.#fx.elapsed()
    this.#closers++
    this.#closings++
    let open = false
    return () => {
      if (open) return
      open = true
      this.#closers--
      if (this.closed) return
      this.#closedMs += this.#fx.elapsed() - this.#closedAt
      for (const pass of [...this.#waiting]) pass()
    }
  }

  /**
   * Resolves when the gate is open, or when the signal aborts with `wanted`. Rejects with the signal's reason for any
   * other abort.
   */
  async passed(signal: AbortSignal): Promise<void> {
    while (this.closed && !signal.aborted) {
      await new Promise<void>(resolve => {
        const pass = () => {
          this.#waiting.delete(pass)
          signal.removeEventListener('abort', pass)
          resolve()
        }
        this.#waiting.add(pass)
        signal.addEventListener('abort', pass, { once: true })
      })
    }
    if (signal.aborted && signal.reason !== wanted) throw asError(signal.reason)
  }

  /**
   * Watches a request: calls `tell` with an error if its stream brings no event for `firstTokenMs` at first, later for
   * `stallMs`, not counting the time while the gate is closed.
   */
  watchdog(stallMs: number, firstTokenMs: number, url: string, tell: (error: Error) => void) {
    let timer: NodeJS.Timeout
    const arm = (ms: number) => {
      const until = this.openMs + ms
      const look = () => {
        const leftMs = until - this.openMs
        if (this.closed || leftMs > 0) {
          timer = setTimeout(look, this.closed ? ms : leftMs)
          return
        }
        const message = `no token from ${url} for ${ms} ms`
        tell(new TroupeError('engine.timeout', { boundary: 'engine', retriable: true, message }))
      }
      timer = setTimeout(look, ms)
    }
    arm(firstTokenMs)
    return {
      fed(): void {
        clearTimeout(timer)
        arm(stallMs)
      },
      stop: () => clearTimeout(timer),
    }
  }
}
