/**
 * Queues the trajectories that have not begun, in the order in which the policy begins them.
 *
 * in   members that are pushed and removed, group lengths that are learnt        out  the member that begins next
 * A policy has one of two orders. oldest: by start order. longest: first a few members of each group, to learn how long
 * its members become; then members of the groups that seem to become longest, so that a step does not end by waiting
 * for them.
 * Invariant: no starvation. Once a trajectory has ended, the mean lifetime of trajectories is known, and a member that
 * is the oldest and has waited 20 such lifetimes goes ahead of all others.
 */
import type { GroupId } from '../../messages/ids'
import { type Member, oldestFirst } from './engineState'
import { Heap, type HeapItem } from './heap'
import type { LengthModel } from './lengthModel'
import type { StartOrder } from './policy'

/** Number of members of a group that begin first: groups of which fewer have begun go ahead of all others. */
const probes = 4
/** Longest wait before the oldest member goes ahead of all others, as a multiple of a trajectory's mean lifetime. */
const patienceLives = 20

interface WaitingGroup extends HeapItem {
  readonly group: GroupId
  readonly members: Heap<Member>
  begun: number
  factor: number
}

interface Place extends HeapItem {
  readonly member: Member
  /** Time at which the member's wait began: the first `peek` after its push, ms. */
  sinceMs: number
}

/** Sort key of a group: 0 until `probes` of its members have left the queue, then 1. */
const probed = ({ begun }: WaitingGroup): number => (begun < probes ? 0 : 1)

export class FreshQueue {
  private readonly groups = new Map<GroupId, WaitingGroup>()
  private readonly byGroup = new Heap<WaitingGroup>(
    (a, b) => probed(a) - probed(b) || a.factor - b.factor || oldestFirst(a.members.peek()!, b.members.peek()!),
  )
  private readonly places = new Map<Member, Place>()
  private readonly byAge = new Heap<Place>((a, b) => oldestFirst(a.member, b.member))
  private unseen: Place[] = []
  private lifetimesMs = 0
  private ended = 0

  constructor(
    private readonly order: StartOrder,
    private readonly lengths: LengthModel,
  ) {}

  get size(): number {
    return this.places.size
  }

  /** Mean time from a trajectory's first turn to its end, ms; Infinity before any trajectory has ended. */
  get meanLifetimeMs(): number {
    return this.ended === 0 ? Number.POSITIVE_INFINITY : this.lifetimesMs / this.ended
  }

  /** Returns the member that begins next, without removing it; undefined if the queue is empty. */
  peek(nowMs: number): Member | undefined {
    for (const place of this.unseen) place.sinceMs = nowMs
    if (this.unseen.length > 0) this.unseen = []
    const oldest = this.byAge.peek()
    if (oldest === undefined || this.order === 'oldest') return oldest?.member
    if (nowMs - oldest.sinceMs > patienceLives * this.meanLifetimeMs) return oldest.member
    return this.byGroup.peek()!.members.peek()
  }

  push(member: Member): void {
    const place: Place = { member, sinceMs: 0, heapIndex: -1 }
    this.unseen.push(place)
    this.places.set(member, place)
    this.byAge.push(place)
    const group = this.groups.get(member.group)
    if (group === undefined) {
      const fresh = { group: member.group, members: new Heap(oldestFirst), begun: 0, factor: 1, heapIndex: -1 }
      fresh.factor = this.lengths.factor(member.group)
      fresh.members.push(member)
      this.groups.set(member.group, fresh)
      this.byGroup.push(fresh)
      return
    }
    this.byGroup.remove(group)
    group.members.push(member)
    this.byGroup.push(group)
  }

  /** Removes a member that begins, or whose trajectory is over. */
  remove(member: Member): void {
    this.byAge.remove(this.places.get(member)!)
    this.places.delete(member)
    const group = this.groups.get(member.group)!
    this.byGroup.remove(group)
    group.members.remove(member)
    group.begun++
    if (group.members.size > 0) this.byGroup.push(group)
    else this.groups.delete(member.group)
  }

  /** Reorders a group after the length model has learnt about its members; has no effect with the order `oldest`. */
  groupLearnt(group: GroupId): void {
    const waiting = this.groups.get(group)
    if (waiting === undefined || this.order === 'oldest') return
    this.byGroup.remove(waiting)
    waiting.factor = this.lengths.factor(group)
    this.byGroup.push(waiting)
  }

  /** Records how long a trajectory took from its first turn to its end. */
  trajectoryEnded(lifetimeMs: number): void {
    this.lifetimesMs += lifetimeMs
    this.ended++
  }
}
