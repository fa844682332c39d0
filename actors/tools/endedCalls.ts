/**
 * Remembers for a short time which calls have ended, so that a late repetition of a request does not run its call again.
 *
 * in   keys of ended calls, the time      out  whether a call has ended lately
 * A coordinator repeats a request when its call has no answer a minute after the call's deadline; the call may end while
 * the repetition is under way. Invariant: a key is remembered for 25 s at least and for 50 s at most. So if the answer
 * was lost, the coordinator's next repetition, a minute later, runs the call again.
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
