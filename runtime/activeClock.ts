/**
 * A clock of active time, for deadlines: it stands still while the process is suspended (a sleeping laptop, SIGSTOP), when
 * nobody could have answered, and it ignores changes of the wall clock.
 *
 * in   things that are waited for, checked often      out  how long each has been waited for, ms
 * Invariant: it never runs backwards, and a gap between two checks counts at most `longestNapMs`. Things that exist at the
 * first check are dated by their fact, since nothing else is known of them: so a replay, which checks once, takes a deadline
 * as the log has it.
 */
import type { Effects } from '../runtime/effects'

/** Owners check every 250 ms, so a longer gap means that the process was suspended. */
const usualNapMs = 5000

export class ActiveClock {
  /** Time on this clock, ms. */
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

  /** Wait for `one` so far, ms. `at`: the time at which its fact says that it was asked for, ms since 1970. */
  waited(one: object, at: number): number {
    let since = this.since.get(one)
    if (since === undefined) {
      since = this.now - (this.looks > 1 ? this.nap(this.wall - at) : Math.max(0, this.wall - at))
      this.since.set(one, since)
    }
    return this.now - since
  }

  /** Starts the wait for `one` anew. */
  restart(one: object): void {
    this.since.set(one, this.now)
  }

  private nap(ms: number): number {
    return Math.min(Math.max(0, ms), this.longestNapMs)
  }
}
