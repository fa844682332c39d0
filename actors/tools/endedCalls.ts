/**
 * Remembers which calls have ended lately. A coordinator repeats its request for a call that has no answer a minute
 * after the call's deadline; the call may end while the repetition is under way, and must not run again then.
 *
 * in   keys of ended calls, the time in ms        out  whether a call has ended lately
 * Invariant: a key is remembered for 25 s at least and for 50 s at most (for 75 s if the methods are called rarely).
 * So if an answer was lost, a later repetition by the coordinator (at most one a minute) runs the call again.
 */
const RENEW_MS = 25_000

export class EndedCalls {
  private newer = new Set<string>()
  private older = new Set<string>()
  private renewedAt = 0

  add(key: string, nowMs: number): void {
    this.renew(nowMs)
    this.newer.add(key)
  }

  has(key: string, nowMs: number): boolean {
    this.renew(nowMs)
    return this.newer.has(key) || this.older.has(key)
  }

  private renew(nowMs: number): void {
    const age = nowMs - this.renewedAt
    if (age < RENEW_MS) return
    this.older = age < 2 * RENEW_MS ? this.newer : new Set()
    this.newer = new Set()
    this.renewedAt = nowMs
  }
}
