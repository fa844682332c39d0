/**
 * The requests of a behaviour to its port: they run beside the actor.
 *
 * in   requests        out  what they resolve with; why one failed
 * Invariant: one at a time for each key, and they go on over the actor's restart. Those that run when the host closes are
 * aborted and waited for.
 */
import { setMaxListeners } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { asError } from '../errors'
import type { Log } from '../log'

export interface HostRequestsOptions<R, A> {
  readonly perform: ((request: R, signal: AbortSignal) => Promise<A | undefined>) | undefined
  /** Two requests with one key are the same request. */
  readonly keyOf: (request: R) => string
  readonly answered: (answer: A) => Promise<void>
  readonly failed: (error: Error) => Promise<void>
  /** Answered or failed, it may be asked again. */
  readonly over: () => void
  /** Why requests are aborted in the end. */
  readonly closing: Error
  readonly log: Log
}

export function hostRequests<R, A>(options: HostRequestsOptions<R, A>) {
  const { perform, keyOf, answered, failed, over, closing, log } = options
  const running = new Map<string, Promise<void>>()
  const aborter = new AbortController()
  setMaxListeners(0, aborter.signal) // every request of this host listens to it

  return {
    ask(asked: R): void {
      const key = keyOf(asked)
      if (running.has(key) || perform === undefined) return
      const work = perform(asked, aborter.signal)
        .then(async answer => {
          if (answer !== undefined) await answered(answer)
        })
        .catch(async thrown => {
          if (aborter.signal.aborted) return
          forget()
          await failed(asError(thrown))
        })
        .catch(thrown => log.error({ err: asError(thrown), key }, 'a failed request could not be reported'))
        .finally(() => {
          forget()
          over()
        })
      // While a failure is reported the same may be asked again: that one is not to be forgotten.
      const forget = () => {
        if (running.get(key) === work) running.delete(key)
      }
      running.set(key, work)
    },
    async close(drainMs: number): Promise<void> {
      const drained = new AbortController()
      const ended = Promise.allSettled(running.values()).finally(() => drained.abort())
      if (drainMs > 0) await Promise.race([ended, sleep(drainMs, undefined, drained).catch(() => {})])
      aborter.abort(closing)
      await Promise.allSettled(running.values())
    },
  }
}
