/**
 * Lifeline: keeps one outside process (an engine, a trainer) alive, and gives up when it dies too often.
 *
 * in   how to start it        out  the process that lives now; calls when one came and when one went
 * Invariant: at most one lives at a time. Too many deaths in too short a time are a failure of the run, said once, with
 * the reason of the last one.
 */

import { defaultRestartPolicy, type Failures, onFailure, type RestartPolicy } from '../../runtime/actor/restartPolicy'
import type { Effects } from '../../runtime/effects'
import { asError, TroupeError } from '../../runtime/errors'

/** A process takes seconds to start: fewer tries, further apart, than for an actor. */
const processPolicy: RestartPolicy = { ...defaultRestartPolicy, maxRestarts: 5, backoffMs: 250 }

export interface Living {
  readonly lost: Promise<Error>
  close(): Promise<void>
}

export interface LifelineOptions<P extends Living> {
  readonly name: string
  readonly start: () => Promise<P>
  /** Runs after every start, before `current` resolves. */
  readonly onUp?: (process: P) => Promise<void>
  readonly onDown?: (error: Error) => Promise<void>
  readonly onFailed: (error: Error) => void
  readonly fx: Effects
  readonly restart?: Partial<RestartPolicy>
}

export interface Lifeline<P extends Living> {
  /** The process that lives, once there is one. */
  current(): Promise<P>
  close(): Promise<void>
}

export function lifeline<P extends Living>(options: LifelineOptions<P>): Lifeline<P> {
  const policy = { ...processPolicy, ...options.restart }
  let deaths: Failures = []
  let closing = false

  async function up(): Promise<P> {
    const process = await options.start()
    try {
      if (closing) throw closed(options.name)
      await options.onUp?.(process)
    } catch (thrown) {
      await process.close() // or it would outlive everybody who knows of it
      throw thrown
    }
    process.lost
      .then(async error => {
        if (closing) return
        await process.close() // lost is not always dead: what cannot be reached keeps its memory until it is ended
        await down(error)
      })
      .catch(thrown => options.onFailed(asError(thrown)))
    return process
  }

  async function down(error: Error): Promise<void> {
    if (closing) return
    const verdict = onFailure(policy, deaths, options.fx.elapsed())
    deaths = verdict.failures
    await options.onDown?.(error)
    if (verdict.do === 'escalate') {
      options.onFailed(
        new TroupeError('process.restarts_exceeded', {
          boundary: 'process',
          retriable: false,
          message: `${options.name} died ${deaths.length} times within ${policy.withinMs} ms; last: ${error.message}`,
          cause: error,
        }),
      )
      return
    }
    living = new Promise(resolve => setTimeout(resolve, verdict.afterMs)).then(up)
    living.catch(thrown => down(asError(thrown)).catch(again => options.onFailed(asError(again))))
  }

  let living = up()
  // Not only to who asks for `current`: nobody asks for an engine, and its run would wait for ever.
  living.catch(thrown => {
    const error = asError(thrown)
    if (closing) return
    if (error instanceof TroupeError && !error.retriable) options.onFailed(error)
    else down(error).catch(again => options.onFailed(asError(again)))
  })

  return {
    current: () => living,
    async close() {
      closing = true
      const process = await living.catch(() => undefined)
      await process?.close()
    },
  }
}

const closed = (name: string) =>
  new TroupeError('process.closed', { boundary: 'process', retriable: true, message: `${name} is no longer wanted` })
