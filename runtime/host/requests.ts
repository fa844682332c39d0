/**
 * Requests of a behaviour to its port, which run concurrently with the actor.
 *
 * in   requests        out  their answers, or errors
 * Invariant: one request runs at a time for each key; a request whose key is running is ignored. Requests continue over
 * a restart of the actor. When the host closes, requests that still run after `drainMs` are aborted, and awaited.
 */
import { setMaxListeners } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { asError } from '../errors'
import type { Log } from '../log'

export interface HostRequestsOptions<R, A> {
  readonly perform: ((request: R, signal: AbortSignal) => Promise<A | undefined>) | undefined
  /** Returns a request's key; requests with equal keys count as the same request. */
  readonly keyOf: (request: R) => string
  readonly answered: (answer: A) => Promise<void>
  readonly failed: (error: Error) => Promise<void>
  /** Called when a request has been answered or has failed, so that it may be made again. */
  readonly over: () => void
  /** Reason with which requests are aborted when the host closes. */
  readonly closing: Error
  readonly log: Log
}

export function hostRequests<R, A>(options: HostRequestsOptions<R, A>) {
  const { perform, keyOf, answered, failed, over, closing, log } = options
  const running = new Map<string, Promise<void>>()
  const aborter = new AbortController()
  setMaxListeners(0, aborter.signal) // prevents a warning: every request of the host listens to the signal

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
        .catch(thrown => log.error({ err: asError(thrown), key }, 'the failure of a request could not be reported'))
        .finally(() => {
          forget()
          over()
        })
      // The same request may be made again while its failure is reported: the new one must stay registered.
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
