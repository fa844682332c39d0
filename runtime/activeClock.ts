/**
 * Measures how long requests have been awaited, in active time, for deadlines. A gap between two ticks counts at most
 * `longestNapMs`: in a longer one the process was suspended (a sleeping laptop, SIGSTOP), and nobody could have
 * answered.
 *
 * in   requests whose answer is awaited, checked often      out  how long each has been awaited, ms
 * Invariant: the clock never runs backwards. The first `waited` call for a request sets its wait to the wall-clock time
 * since its fact: to all of that time if the clock has ticked only once (a replay ticks once, so it applies a deadline
 * as the log has it), else to at most `longestNapMs`.
 */
import type { Effects } from '../runtime/effects'

/**
 * Default of `longestNapMs`: the most that a gap between two ticks counts, ms. The actors that use this default tick
 * every 250 ms, so a longer gap means that the process was suspended.
 */
const usualNapMs = 5000

export class ActiveClock {
  /** Active time since the first `tick`, ms. */
  now = 0
  private looks = 0
  private elapsed = 0
  private wall = 0
  private readonly since = new WeakMap<object, number>()

  constructor(private readonly longestNapMs = usualNapMs) {}

  /** Advances the clock; call it before the other methods, at every check. */
  tick(fx: Pick<Effects, 'now' | 'elapsed'>): void {
    const elapsed = fx.elapsed()
    if (this.looks++ > 0) this.now += this.nap(elapsed - this.elapsed)
    this.elapsed = elapsed
    this.wall = fx.now()
  }

  /**
   * Returns the active ms for which the request `one` has been awaited at the latest `tick`. `at`: time of its fact, ms
   * since 1970.
   */
  waited(one: object, at: number): number {
    let since = this.since.get(one)
    if (since === undefined) {
      since = this.now - (this.looks > 1 ? this.nap(this.wall - at) : Math.max(0, this.wall - at))
      this.since.set(one, since)
    }
    return this.now - since
  }

  /** Sets the wait for the request `one` back to 0 ms; it counts from now on. */
  restart(one: object): void {
    this.since.set(one, this.now)
  }

  private nap(ms: number): number {
    return Math.min(Math.max(0, ms), this.longestNapMs)
  }
}
