/**
 * Time in which this process was awake, for deadlines: while a laptop sleeps, or a process is stopped, nobody could answer,
 * and a clock that is set forwards or backwards says nothing about how long somebody has waited.
 *
 * in   what is waited for, looked at often      out  for how long, ms
 * Invariant: it never runs backwards, and a nap counts as `longestNapMs` at most. What is there at the first look is dated by
 * its fact, since nothing else is known of it: so a replay, which looks once, takes a deadline as the log has it.
 */
import type { Effects } from '../runtime/effects'

/** Owners look every quarter of a second: who could not for longer than this was not awake. */
const usualNapMs = 5000

export class Awake {
  /** Where the clock stands, ms. */
  now = 0
  private looks = 0
  private elapsed = 0
  private wall = 0
  private readonly since = new WeakMap<object, number>()

  constructor(private readonly longestNapMs = usualNapMs) {}

  /** To be called before the others, at every look. */
  look(fx: Pick<Effects, 'now' | 'elapsed'>): void {
    const elapsed = fx.elapsed()
    if (this.looks++ > 0) this.now += this.nap(elapsed - this.elapsed)
    this.elapsed = elapsed
    this.wall = fx.now()
  }

  /** How long `one` has been waited for. `at`: when its fact says that it was asked for, ms since 1970. */
  waited(one: object, at: number): number {
    let since = this.since.get(one)
    if (since === undefined) {
      since = this.now - (this.looks > 1 ? this.nap(this.wall - at) : Math.max(0, this.wall - at))
      this.since.set(one, since)
    }
    return this.now - since
  }

  /** It is waited for anew. */
  restart(one: object): void {
    this.since.set(one, this.now)
  }

  private nap(ms: number): number {
    return Math.min(Math.max(0, ms), this.longestNapMs)
  }
}
