/**
 * Failure streaks: counts consecutive failures of one kind and makes the third final, however far apart they are. The
 * restart policy (restartPolicy.ts) stops only failures in quick succession: one that repeats every hour would never end.
 *
 * in   the work of each attempt, with its kind        out  its result, its error, or `…failed_repeatedly`
 * Invariant: time plays no part. A success of a kind, or progress that its next attempt goes on from, sets its count to
 * 0; other kinds' counts stay.
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
 * How an error counts. failed: one more in the row. succeeded: the kind works, the request was at fault. ignored: says
 * nothing about the kind.
 */
type Counts = 'failed' | 'succeeded' | 'ignored'

export class FailureStreaks {
  readonly #failures = new Map<string, number>()

  constructor(private readonly countsAs: (error: Error) => Counts = () => 'failed') {}

  /** Notes that a kind's attempt got further: what it has left, its next attempt goes on from. */
  progressed({ what }: AttemptKind): void {
    this.#failures.delete(what)
  }

  /**
   * Makes one attempt. Rejects with the attempt's own error; at the third failure in a row with a TroupeError
   * `<boundary>.failed_repeatedly`, which is not retriable and has the last failure as its cause.
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
