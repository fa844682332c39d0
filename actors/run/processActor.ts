/**
 * Process actor: an actor that owns one outside process (an engine, a trainer, a renderer), and starts a new one at
 * each restart of the actor.
 *
 * in   how to start the process; its death
 * out  the process that is alive; calls to onUp after a start and onDown after the end of a process that was up
 * Invariant: at most one process lives at a time. A death or a failed start is a failure of the actor, which starts
 * another process with backoff. After too many failures, at the third start in a row that fails however far apart, or
 * at an error that no restart can help, the actor gives up, with the last failure as the reason.
 */

import { FailureStreaks } from '../../runtime/actor/failureStreaks'
import { defaultRestartPolicy, type RestartPolicy } from '../../runtime/actor/restartPolicy'
import { rootCause } from '../../runtime/actor/rootCause'
import type { ActorContext, ActorSpec, StopReason } from '../../runtime/actor/system'
import { asError, TroupeError } from '../../runtime/errors'

/**
 * Default restart policy. A process takes seconds to start, so an actor with a process gets fewer restarts, further
 * apart, than an actor without one.
 */
const processPolicy: RestartPolicy = { ...defaultRestartPolicy, maxRestarts: 5, backoffMs: 250 }

export interface Living {
  readonly lost: Promise<Error>
  close(): Promise<void>
}

export interface ProcessOptions<P extends Living> {
  readonly name: string
  /** Starts the process. `signal` aborts when the process is no longer wanted. */
  start(signal: AbortSignal): Promise<P>
  /**
   * Called each time that a process has started, before `current` resolves with it. Actors spawned from `context` end
   * with the process. `onFailed` takes their escalations: then the process is started again, unless the error says that
   * no restart can help.
   */
  onUp?(process: P, context: ActorContext, onFailed: (error: Error) => void): Promise<void>
  /**
   * Called at the end of each process that was up, not after a failed start or `onUp`: before the process is closed if
   * it was stopped, after it is closed if it failed.
   */
  onDown?(reason: StopReason, error: Error | undefined): Promise<void>
  /**
   * Returns true if no restart can help. Default: true for a TroupeError that is not retriable, until the first start
   * has succeeded.
   */
  isFatal?(error: Error, wasUp: boolean): boolean
  readonly restart?: Partial<RestartPolicy>
  /**
   * True for a process that somebody else starts: failed starts in a row are not counted, since the actor only waits
   * for it. Default: false.
   */
  readonly waitsForever?: boolean
  readonly stopWithinMs?: number
}

export interface ProcessActor<P extends Living> {
  readonly name: string
  make(onGivenUp: (error: Error, isHopeless: boolean) => void): ActorSpec<never>
  /**
   * Resolves with the process that is alive; waits while none is. Rejects with `process.restarts_exceeded`,
   * `process.failed_repeatedly` or `process.closed`, or with an error that no restart can help.
   */
  current(): Promise<P>
  /** Makes pending and later calls of `current` reject with `process.closed`, because the actor is being stopped. */
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
      message: `${name} failed ${deaths} times within ${policy.withinMs} ms; last: ${last.message}`,
      hint:
        (last instanceof TroupeError ? last.hint : undefined) ??
        `remove the cause, which the log lines of ${name} show; then resume the run with \`train --resume\``,
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
      const starts = new FailureStreaks(() => (options.waitsForever === true ? 'ignored' : 'failed'))
      /** True once the third start in a row has failed. */
      let hasFailedRepeatedly = false
      const start = (signal: AbortSignal) =>
        starts
          .attempt({ what: `the start of ${name}`, boundary: 'process' }, () => options.start(signal))
          .catch(thrown => {
            hasFailedRepeatedly =
              asError(thrown) instanceof TroupeError && (thrown as TroupeError).code === 'process.failed_repeatedly'
            if (hasFailedRepeatedly) final.add(thrown as Error)
            throw thrown
          })
      const close = async () => {
        const ended = process
        process = undefined
        await ended?.close()
      }
      renew() // callers of `current` wait for the process that starts after a pause
      return {
        name,
        kind: 'process',
        mailbox: { capacity: 1 },
        restart: policy,
        ...(options.stopWithinMs === undefined ? {} : { stopWithinMs: options.stopWithinMs }),
        isFatal: thrown => final.has(asError(thrown)) || isFatal(asError(thrown), wasUp),
        async start(context) {
          const started = await start(context.signal)
          const failed = (error: Error) => {
            if (noRestartHelps(error)) final.add(error)
            context.fail(error)
          }
          try {
            if (context.signal.aborted) throw closed(name)
            await onUp?.(started, context, failed)
          } catch (thrown) {
            await started.close() // the actor does not own the process yet, so nothing else would end it
            throw thrown
          }
          process = started
          wasUp = true
          next.resolve(started)
          void started.lost.then(error => {
            if (process === started) renew() // callers of `current` must not get a dead process
            context.fail(error)
          })
          return () => {}
        },
        async beforeStop(reason, error) {
          renew()
          if (reason === 'stopped') next.reject(closed(name))
          // A process that was reported lost may still run: if only its connection broke, it keeps its memory until it
          // is ended.
          else await close()
          await onDown?.(reason, error === undefined ? undefined : rootCause(error))
        },
        stop: close,
        onEscalate(escalated) {
          const error = givenUp(escalated)
          renew()
          next.reject(error)
          onGivenUp(error, !wasUp && !hasFailedRepeatedly && escalated.code !== 'actor.escalated')
        },
      }
    },
  }
}

/**
 * True for errors of `context`'s children that a new process would meet as well: errors of the bus, of the config, and
 * non-retriable ones; not for `actor.escalated` (the child has used up its own restarts).
 */
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
  promise.catch(() => {}) // a failure must not become an unhandled rejection when nobody waits for the process
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
  new TroupeError('process.closed', {
    boundary: 'process',
    retriable: true,
    message: `process ${name} was stopped: its run no longer needs it`,
  })
