/**
 * What every engine over somebody else's server says of a request: why it is refused, why it failed, when it must wait.
 *
 * in   requests, pauses        out  coded errors; a gate that is closed while the server changes its weights
 * Invariant: a request that cannot fit never reaches a server. No clock of a request runs while the gate is closed.
 */
import type { EngineId } from '../../../messages/ids'
import type { Effects } from '../../../runtime/effects'
import { asError, TroupeError } from '../../../runtime/errors'
import type { EngineCapabilities, GenerateRequest } from '../engine'
import { keyHint, wantsKey } from './reply'

/** Why a request was ended: because it was asked for, and so no error. */
export const wanted = Symbol('wanted')

/** `running`: by request id. @throws TroupeError engine.context_exceeded, engine.bad_request */
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
      message: `${id}: ${context.length} tokens leave no room in a context of ${room}`,
      hint: 'lower limits.contextTokens, or start the server with a longer context and more KV cache',
    })
  }
  const foreign = context.find(token => token < 0 || token >= vocabulary)
  if (context.length === 0 || foreign !== undefined) {
    throw badRequest(
      context.length === 0 ? `${id}: a context of no tokens` : `${id}: token id ${foreign} of ${vocabulary}`,
    )
  }
}

/** Of an engine in this process that was told to end. */
export const closedEngine = (id: EngineId): TroupeError =>
  new TroupeError('engine.lost', { boundary: 'engine', retriable: true, message: `${id} is closed` })

export const badRequest = (message: string): TroupeError =>
  new TroupeError('engine.bad_request', { boundary: 'engine', retriable: false, message })

/** A request that the server does not take, or has given up. */
export function refused(url: string, status: number, message: string, tooLong: RegExp): TroupeError {
  const code = status === 400 && tooLong.test(message) ? 'engine.context_exceeded' : 'engine.failed'
  const hint = wantsKey(status) ? keyHint : undefined
  return new TroupeError(code, {
    boundary: 'engine',
    // Another moment may be better for a server that is overloaded or failing, not for a request that it does not take.
    retriable: status >= 500 || status === 429,
    message: `${url} says ${status}: ${message}`,
    ...(hint === undefined ? {} : { hint }),
  })
}

/** The server lives, but this request is lost. */
export function asFailure(url: string, error: Error): Error {
  if (error instanceof TroupeError && error.code !== 'engine.lost') return error
  return new TroupeError('engine.failed', {
    boundary: 'engine',
    retriable: true,
    message: `a request to ${url} broke off, and the server lives: ${error.message}`,
    cause: error,
  })
}

/** It ended as if it had been aborted, and nobody here has asked for that. */
export const endedByServer = (url: string): TroupeError =>
  new TroupeError('engine.failed', {
    boundary: 'engine',
    retriable: true,
    message: `the server at ${url} ended the request, which nobody here asked for`,
    hint: 'look at its log: somebody else may abort its requests, or it has no room for them',
  })

/** Closed while the server is paused: requests wait before it, and the clocks of those that were sent stand still. */
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

  /** How often it was closed. */
  get closings(): number {
    return this.#closings
  }

  get closed(): boolean {
    return this.#closers > 0
  }

  /** A clock that stands still while it is closed. */
  get openMs(): number {
    return (this.closed ? this.#closedAt : this.#fx.elapsed()) - this.#closedMs
  }

  /** Whoever closes it opens it, once. */
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

  /** Resolves when it is open, or when the signal says `wanted`. Rejects with the signal's error. */
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

  /** Tells of a request that stands still. */
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
