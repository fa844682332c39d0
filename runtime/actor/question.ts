/**
 * A pending `ask` of an actor, on the caller's side.
 *
 * in   an answer, a failure, a deadline, an abort: whichever comes first        out  one settled promise
 * Invariant: a question settles once; its timer and its listener are removed then, and later answers are ignored.
 */
import { asError, type TroupeError } from '../errors'
import { actorError } from './actorError'
import type { AskOptions, Reply } from './spec'

let asked = 0

export class Question<R> implements Reply<R> {
  readonly id = ++asked
  readonly promise: Promise<R>
  #settled = false
  /** The handler's latest failure on this question; undefined while it has not failed. */
  #crash: TroupeError | undefined
  #settle!: (error: unknown, value?: R) => void

  constructor(path: string, options: AskOptions) {
    this.promise = new Promise<R>((resolve, reject) => {
      const { deadlineMs, signal } = options
      const onAbort = () => this.fail(aborted(path, signal))
      const timer = setTimeout(() => this.abandon(late(path, this.id, deadlineMs)), deadlineMs)
      signal?.addEventListener('abort', onAbort, { once: true })
      this.#settle = (error, value) => {
        if (this.#settled) return
        this.#settled = true
        clearTimeout(timer)
        signal?.removeEventListener('abort', onAbort)
        if (error === undefined) resolve(value as R)
        else reject(error)
      }
    })
    if (options.signal?.aborted) this.fail(aborted(path, options.signal))
  }

  get settled(): boolean {
    return this.#settled
  }

  answer(value: R): void {
    this.#settle(undefined, value)
  }

  fail(error: unknown): void {
    this.#settle(asError(error))
  }

  /**
   * Settles a question that will get no answer: with the handler's failure if the handler has failed on it, else with
   * `error`.
   */
  abandon(error: TroupeError): void {
    this.fail(this.#crash ?? error)
  }

  crashed(error: TroupeError): void {
    this.#crash = error
  }
}

export const aborted = (path: string, signal: AbortSignal | undefined): TroupeError =>
  actorError('actor.aborted', path, 'did not take or answer a message: its sender aborted the call', {
    cause: signal?.reason,
  })

const late = (path: string, id: number, deadlineMs: number): TroupeError =>
  actorError('actor.ask_timeout', path, `did not answer question ${id} within ${deadlineMs} ms`)
