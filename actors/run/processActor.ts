/**
 * A child that owns one outside process (an engine, a trainer, a renderer), as an actor: each incarnation starts one.
 *
 * in   how to start the process; its death        out  the process that lives now; calls when one came and when one went
 * Invariant: at most one lives at a time. A death, and a start that failed, is a failure of the actor: it starts another
 * with backoff, and gives up after too many, once, with the reason of the last one.
 */

import { defaultRestartPolicy, type RestartPolicy } from '../../runtime/actor/restartPolicy'
import { rootCause } from '../../runtime/actor/rootCause'
import type { ActorContext, ActorSpec, StopReason } from '../../runtime/actor/system'
import { asError, TroupeError } from '../../runtime/errors'

/** A process takes seconds to start: fewer tries, further apart, than for an actor without one. */
const processPolicy: RestartPolicy = { ...defaultRestartPolicy, maxRestarts: 5, backoffMs: 250 }

export interface Living {
  readonly lost: Promise<Error>
  close(): Promise<void>
}

export interface ProcessOptions<P extends Living> {
  readonly name: string
  /** Starts the process. `signal` aborts when it is no longer wanted. */
  start(signal: AbortSignal): Promise<P>
  /**
   * Runs after every start, before `current` resolves. Children of `context` end with the process; `onFailed` takes their
   * escalations: the process is started anew, unless the error says that no restart can help.
   */
  onUp?(process: P, context: ActorContext, onFailed: (error: Error) => void): Promise<void>
  /** Runs after every end: before the process is closed where it was stopped, after it where it failed. */
  onDown?(reason: StopReason, error: Error | undefined): Promise<void>
  /** True: no restart can help. Default: the first start failed with an error that is not retriable. */
  isFatal?(error: Error, wasUp: boolean): boolean
  readonly restart?: Partial<RestartPolicy>
  readonly stopWithinMs?: number
}

export interface ProcessActor<P extends Living> {
  readonly name: string
  make(onGivenUp: (error: Error, isHopeless: boolean) => void): ActorSpec<never>
  /**
   * Resolves with the process that lives, once there is one. Rejects with `process.restarts_exceeded`, with the error of a
   * first start that can never succeed, or with `process.closed`.
   */
  current(): Promise<P>
  /** Rejects those that wait for `current`: the child is being stopped. */
  end(): void
}

export const neverSucceeds = (error: Error, wasUp: boolean): boolean =>
  !wasUp && error instanceof TroupeError && !error.retriable

export function processActor<P extends Living>(options: ProcessOptions<P>): ProcessActor<P> {
  const { name, isFatal = neverSucceeds, onUp, onDown } = options
  const policy = { ...processPolicy, ...options.restart }
  let wasUp = false
  let next = latch<P>()
  const final = new WeakSet<Error>()
  /** Makes callers of `current` wait for the next process. */
  const renew = () => {
    if (next.isSettled()) next = latch()
  }

  function givenUp(escalated: TroupeError): Error {
    if (escalated.code !== 'actor.escalated') return asError(escalated.cause ?? escalated)
    const last = rootCause(escalated)
    const deaths = policy.maxRestarts + 1
    return new TroupeError('process.restarts_exceeded', {
      boundary: 'process',
      retriable: false,
      message: `${name} died ${deaths} times within ${policy.withinMs} ms; last: ${last.message}`,
      cause: last,
    })
  }

  return {
    name,
    current: () => next.promise,
    end() {
      renew()
      next.reject(closed(name))
    },
    make: onGivenUp => {
      let process: P | undefined
      const close = async () => {
        const ended = process
        process = undefined
        await ended?.close()
      }
      renew() // it has rested
      return {
        name,
        kind: 'process',
        mailbox: { capacity: 1 },
        restart: policy,
        ...(options.stopWithinMs === undefined ? {} : { stopWithinMs: options.stopWithinMs }),
        isFatal: thrown => final.has(asError(thrown)) || isFatal(asError(thrown), wasUp),
        async start(context) {
          const started = await options.start(context.signal)
          const failed = (error: Error) => {
            if (noRestartHelps(error)) final.add(error)
            context.fail(error)
          }
          try {
            if (context.signal.aborted) throw closed(name)
            await onUp?.(started, context, failed)
          } catch (thrown) {
            await started.close() // or it would outlive everybody who knows of it
            throw thrown
          }
          process = started
          wasUp = true
          next.resolve(started)
          void started.lost.then(error => {
            if (process === started) renew() // nobody is given a dead one any more
            context.fail(error)
          })
          return () => {}
        },
        async beforeStop(reason, error) {
          renew()
          if (reason === 'stopped') next.reject(closed(name))
          // A lost process is not always dead: one that cannot be reached keeps its memory until it is ended.
          else await close()
          await onDown?.(reason, error === undefined ? undefined : rootCause(error))
        },
        stop: close,
        onEscalate(escalated) {
          const error = givenUp(escalated)
          renew()
          next.reject(error)
          onGivenUp(error, !wasUp && escalated.code !== 'actor.escalated')
        },
      }
    },
  }
}

/** A child's errors after which a new process would meet the same: all but its own restarts being used up. */
const noRestartHelps = (error: Error): boolean =>
  error instanceof TroupeError &&
  (error.boundary === 'bus' || error.boundary === 'config' || (!error.retriable && error.code !== 'actor.escalated'))

interface Latch<P> {
  readonly promise: Promise<P>
  resolve(value: P): void
  reject(error: Error): void
  isSettled(): boolean
}

function latch<P>(): Latch<P> {
  let settled = false
  let resolve: (value: P) => void = () => {}
  let reject: (error: Error) => void = () => {}
  const promise = new Promise<P>((yes, no) => {
    resolve = yes
    reject = no
  })
  promise.catch(() => {}) // a process that nobody asks for may fail all the same
  const once =
    <T>(settle: (value: T) => void) =>
    (value: T) => {
      settled = true
      settle(value)
    }
  return {
    promise,
    resolve: once(value => resolve(value)),
    reject: once(error => reject(error)),
    isSettled: () => settled,
  }
}

const closed = (name: string) =>
  new TroupeError('process.closed', { boundary: 'process', retriable: true, message: `${name} is no longer wanted` })
