/**
 * Tally: what a judge has done so far, for `/status`, and how fast, for `Retry-After`.
 *
 * in   a line for each call that began, ended or never did      out  counts, percentiles of the last 4096 calls, a rate
 */
const KEPT = 4096
const RATE_WINDOW_MS = 5000

export type Fate = 'answered' | 'timedOut' | 'queueTimeouts' | 'dropped' | 'refused' | 'internalErrors'

export class Tally {
  readonly counts: Record<Fate, number> = {
    answered: 0,
    timedOut: 0,
    queueTimeouts: 0,
    dropped: 0,
    refused: 0,
    internalErrors: 0,
  }
  readonly #waits = new Float64Array(KEPT)
  #begun = 0
  #window = { since: performance.now(), ended: 0 }
  #perSecond = 0

  count(fate: Fate, calls = 1): void {
    this.counts[fate] += calls
  }

  /** A call that has ended had waited this long before it began. */
  waited(ms: number): void {
    this.#waits[this.#begun++ % KEPT] = ms
  }

  /** A call has ended, in whatever way. */
  ended(): void {
    const now = performance.now()
    const { since, ended } = this.#window
    if (now - since < RATE_WINDOW_MS) this.#window.ended++
    else {
      this.#perSecond = (1000 * (ended + 1)) / (now - since)
      this.#window = { since: now, ended: 0 }
    }
  }

  /** Seconds in which so many calls will have been worked off, from 1 to 60. */
  secondsFor(calls: number): number {
    const { since, ended } = this.#window
    const rate = this.#perSecond || (1000 * ended) / Math.max(1, performance.now() - since)
    return rate === 0 ? 5 : Math.min(60, Math.max(1, Math.ceil(calls / rate)))
  }

  /** Of the queue waits of the last calls, ms; 0 before the first. */
  waitMs(quantile: number): number {
    const sorted = this.#waits.slice(0, Math.min(this.#begun, KEPT)).sort()
    return sorted[Math.floor(quantile * (sorted.length - 1))] ?? 0
  }
}
