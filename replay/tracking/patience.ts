/**
 * Waits after failures of a tracker or a receiver, longer each time, and gives up after a while.
 *
 * in   failures after which the same work may succeed later; successes
 * out  pauses that double from `everyMs` to 30 s; the error, thrown at a failure when the run is over and the pauses of
 *      the failures in a row add up to `patienceMs`
 * Invariant: while the run is not over (`isOver`) and the try is not the last (`isLast`), no error is thrown, however
 * long the failures last; their pauses count all the same. A failure of the last try throws at once.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { TroupeError } from '../../runtime/errors'

export interface PatienceOptions {
  /** Milliseconds between two reads of the log, and from a failure to the second try. Default 1000. */
  readonly everyMs?: number
  /** When aborted, tracking reads once more to the log's end, tries the tracker once more, and ends. */
  readonly signal?: AbortSignal
  /**
   * Sum of the pauses after failures in a row, in ms, from which on tracking throws the tracker's error, if the run has
   * finished or is not followed. While a followed run goes on, a failing tracker is tried again without limit. Default
   * 30,000.
   */
  readonly patienceMs?: number
  /**
   * Called with the tracker's error at the first of several failures in a row, and with undefined when the tracker
   * works again.
   */
  readonly onTrouble?: (error: TroupeError | undefined) => void
}

const usualEveryMs = 1000
const usualPatienceMs = 30_000
/** Upper bound on the time between two tries, ms. */
const longestWaitMs = 30_000

export class Patience {
  readonly everyMs: number
  readonly #patienceMs: number
  #troubleMs = 0
  #waitMs: number

  constructor(private readonly options: PatienceOptions) {
    const { everyMs = usualEveryMs, patienceMs = usualPatienceMs } = options
    this.everyMs = this.#waitMs = everyMs
    this.#patienceMs = patienceMs
  }

  /** Waits `ms` milliseconds, or until the signal is aborted. */
  async pause(ms: number): Promise<void> {
    const { signal } = this.options
    await sleep(ms, undefined, signal === undefined ? {} : { signal }).catch(() => {})
  }

  /** Called after a success: ends the series of failures, so the next failure is the first of a new series. */
  worked(): void {
    if (this.#troubleMs > 0) this.options.onTrouble?.(undefined)
    this.#troubleMs = 0
    this.#waitMs = this.everyMs
  }

  /**
   * Waits until the next try. @throws `trouble` if this was the last try, or if the run is over and the tracker has
   * failed for `patienceMs`
   */
  async failed(trouble: TroupeError, { isLast, isOver }: { isLast: boolean; isOver: boolean }): Promise<void> {
    if (isLast || (isOver && this.#troubleMs >= this.#patienceMs)) throw trouble
    if (this.#troubleMs === 0) this.options.onTrouble?.(trouble)
    this.#troubleMs += this.#waitMs
    await this.pause(this.#waitMs)
    this.#waitMs = Math.min(this.#waitMs * 2, longestWaitMs)
  }
}

/** Does the work. Returns an error after which the same work may succeed later, else undefined. @throws other errors */
export async function troubleOf(work: () => Promise<void>): Promise<TroupeError | undefined> {
  try {
    await work()
    return undefined
  } catch (thrown) {
    if (thrown instanceof TroupeError && thrown.retriable) return thrown
    throw thrown
  }
}
