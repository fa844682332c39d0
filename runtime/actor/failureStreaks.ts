/**
 * Failure streaks: counts consecutive failures of one kind and makes the third final, however far apart they are. The
 * restart policy (restartPolicy.ts) escalates only failures in quick succession: with it alone, work that fails every
 * hour would be retried for ever.
 *
 * in   the work of each attempt, with its kind        out  its result, its error, or `…failed_repeatedly`
 * Invariant: time plays no part. A kind's count returns to 0 when one of its attempts succeeds, when an error counts as
 * 'succeeded', or at `progressed`; other kinds' counts stay.
 */
import { asError, type Boundary, TroupeError } from '../errors'

/** Number of failures of one kind in a row at which the last one is final. */
export const mostInARow = 3

export interface AttemptKind {
  /** Name of the kind, as the error's message shows it: `the trainer's step`. */
  readonly what: string
  readonly boundary: Boundary
  /** Advice in the final error. */
  readonly hint?: string
}

/**
 * Effect of an error on its kind's count. failed: adds one. succeeded: resets it to 0, since the kind works and only
 * the request was at fault. ignored: leaves it as it is.
 */
type Counts = 'failed' | 'succeeded' | 'ignored'

export class FailureStreaks {
  readonly #failures = new Map<string, number>()

  constructor(private readonly countsAs: (error: Error) => Counts = () => 'failed') {}

  /** Resets the kind's count to 0: an attempt has saved progress from which the next attempt continues. */
  progressed({ what }: AttemptKind): void {
    this.#failures.delete(what)
  }

  /**
   * Makes one attempt. Rejects with the attempt's own error; from the third counted failure in a row on with a
   * TroupeError `<boundary>.failed_repeatedly`, which is not retriable and has the last failure as its cause.
   */
  async attempt<T>(kind: AttemptKind, work: () => Promise<T>): Promise<T> {
    const { what } = kind
    try {
      const result = await work()
      this.#failures.delete(what)
      return result
    } catch (thrown) {
      const error = asError(thrown)
      const counts = this.countsAs(error)
      if (counts === 'succeeded') this.#failures.delete(what)
      if (counts !== 'failed') throw error
      const failures = (this.#failures.get(what) ?? 0) + 1
      this.#failures.set(what, failures)
      throw failures < mostInARow ? error : repeated(kind, failures, error)
    }
  }
}

function repeated({ what, boundary, hint }: AttemptKind, failures: number, last: Error): TroupeError {
  const advice = hint ?? (last instanceof TroupeError ? last.hint : undefined)
  return new TroupeError(`${boundary}.failed_repeatedly`, {
    boundary,
    retriable: false,
    message: `${what} failed ${failures} times in a row; last: ${last.message}`,
    ...(advice === undefined ? {} : { hint: advice }),
    cause: last,
  })
}
