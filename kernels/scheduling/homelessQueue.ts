/**
 * Queues the trajectories that have begun and are on no engine: their engine left or has become too small for them, or
 * they were paused.
 *
 * in   trajectories that are pushed and removed        out  the trajectory that continues next
 * Trajectories that were not paused go first. Paused ones follow, those with the fewest tokens after the prompt first,
 * so that all progress at a similar speed.
 * Invariant: a paused trajectory that began more than `patienceMs` ago goes ahead of all others, the oldest first,
 * however often it was paused since. Only differences of times are used, so any clock will do.
 */
import { type Member, oldestFirst } from './engineState'
import { Heap, type HeapItem } from './heap'

interface Pause extends HeapItem {
  readonly member: Member
  /** Time at which the trajectory began (if unknown: was paused), ms. */
  readonly sinceMs: number
}

export class HomelessQueue {
  private readonly byRank = new Heap<Member>(oldestFirst)
  private readonly byAge = new Heap<Pause>((a, b) => a.sinceMs - b.sinceMs || oldestFirst(a.member, b.member))
  private readonly pauses = new Map<Member, Pause>()

  get size(): number {
    return this.byRank.size
  }

  /** Returns the trajectory that continues next, without removing it; undefined if the queue is empty. */
  peek(nowMs: number, patienceMs: number): Member | undefined {
    const oldest = this.byAge.peek()
    return oldest !== undefined && nowMs - oldest.sinceMs > patienceMs ? oldest.member : this.byRank.peek()
  }

  push(member: Member): void {
    const { begunMs, pausedMs, contextTokens, promptTokens } = member
    member.rank = pausedMs === null ? 0 : 1 + contextTokens - promptTokens
    this.byRank.push(member)
    if (pausedMs === null) return
    const pause: Pause = { member, sinceMs: begunMs ?? pausedMs, heapIndex: -1 }
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
