/**
 * Statistics of a judge's calls: counts and waits for `/status`, the rate for `Retry-After`.
 *
 * in   the wait and the end of each call
 * out  counts, quantiles of the last 4096 waits, estimated seconds until a number of calls has ended
 */
const KEPT = 4096
const RATE_WINDOW_MS = 5000

export type Fate = 'answered' | 'timedOut' | 'queueTimeouts' | 'dropped' | 'refused' | 'internalErrors'

export class CallStatistics {
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

  /** Records how many milliseconds a call had waited before it began. */
  waited(ms: number): void {
    this.#waits[this.#begun++ % KEPT] = ms
  }

  /** Records the end of a call, whatever its outcome. */
  ended(): void {
    const now = performance.now()
    const { since, ended } = this.#window
    if (now - since < RATE_WINDOW_MS) this.#window.ended++
    else {
      this.#perSecond = (1000 * (ended + 1)) / (now - since)
      this.#window = { since: now, ended: 0 }
    }
  }

  /** Returns the estimated seconds until this many calls have ended, from 1 to 60; 5 if the rate is not known yet. */
  secondsFor(calls: number): number {
    const { since, ended } = this.#window
    const rate = this.#perSecond || (1000 * ended) / Math.max(1, performance.now() - since)
    return rate === 0 ? 5 : Math.min(60, Math.max(1, Math.ceil(calls / rate)))
  }

  /** Returns a quantile (0 to 1) of the waits of the last 4096 calls in ms; 0 before the first call. */
  waitMs(quantile: number): number {
    const sorted = this.#waits.slice(0, Math.min(this.#begun, KEPT)).sort()
    return sorted[Math.floor(quantile * (sorted.length - 1))] ?? 0
  }
}
