/**
 * Trajectories that have begun and have no engine: theirs has left, or they were paused.
 *
 * Those of lost engines go first, then those that have had least, so that all get on at about one speed.
 * Invariant: one that was paused longer ago than trajectories wait goes ahead of all, so that a stream of younger ones holds
 * none back for ever. Only differences of times count: a clock may show a date.
 */
import { Heap, type HeapItem } from './heap'
import { type Member, oldestFirst } from './seat'

interface Pause extends HeapItem {
  readonly member: Member
  readonly sinceMs: number
}

export class HomelessQueue {
  private readonly byRank = new Heap<Member>(oldestFirst)
  private readonly byAge = new Heap<Pause>((a, b) => a.sinceMs - b.sinceMs || oldestFirst(a.member, b.member))
  private readonly pauses = new Map<Member, Pause>()

  get size(): number {
    return this.byRank.size
  }

  /** The one that is to go on next. */
  peek(nowMs: number, patienceMs: number): Member | undefined {
    const oldest = this.byAge.peek()
    return oldest !== undefined && nowMs - oldest.sinceMs > patienceMs ? oldest.member : this.byRank.peek()
  }

  push(member: Member): void {
    const { pausedMs, contextTokens, promptTokens } = member
    member.rank = pausedMs === null ? 0 : 1 + contextTokens - promptTokens
    this.byRank.push(member)
    if (pausedMs === null) return
    const pause: Pause = { member, sinceMs: pausedMs, heapIndex: -1 }
    this.pauses.set(member, pause)
    this.byAge.push(pause)
  }

  remove(member: Member): void {
    this.byRank.remove(member)
    member.rank = 0
    const pause = this.pauses.get(member)
    if (pause === undefined) return
    this.pauses.delete(member)
    this.byAge.remove(pause)
  }
}
