/**
 * Restart decisions: what to do when an actor, or a process that an actor owns, has failed.
 *
 * in   a policy, the failures so far, the time
 * out  restart after a delay, or escalate; the failures to remember
 * Invariant: pure functions. More than `maxRestarts` failures within `withinMs` always escalate, so that nothing
 * restarts for ever in quick succession.
 */
export interface RestartPolicy {
  /** Number of failures within `withinMs` that are each followed by a restart; one more failure escalates. */
  readonly maxRestarts: number
  readonly withinMs: number
  /**
   * Delay before the first restart, ms; it doubles with every further failure within `withinMs`, up to `maxBackoffMs`.
   */
  readonly backoffMs: number
  readonly maxBackoffMs: number
  /** Number of crashes on one message at which the message becomes a dead letter. */
  readonly attemptsPerMessage: number
}

export const defaultRestartPolicy: RestartPolicy = {
  maxRestarts: 10,
  withinMs: 60_000,
  backoffMs: 50,
  maxBackoffMs: 5_000,
  attemptsPerMessage: 3,
}

/** Times of the failures that still count against `maxRestarts`, oldest first, on a monotonic clock in ms. */
export type Failures = readonly number[]

export type Verdict =
  | { readonly do: 'restart'; readonly afterMs: number; readonly failures: Failures }
  | { readonly do: 'escalate'; readonly failures: Failures }

/** Decides about a failure at time `nowMs`, given the `failures` before it. */
export function onFailure(policy: RestartPolicy, failures: Failures, nowMs: number): Verdict {
  const counted = [...failures.filter(at => nowMs - at < policy.withinMs), nowMs]
  if (counted.length > policy.maxRestarts) return { do: 'escalate', failures: counted }
  const afterMs = Math.min(policy.backoffMs * 2 ** (counted.length - 1), policy.maxBackoffMs)
  return { do: 'restart', afterMs, failures: counted }
}
