/**
 * Trajectories that have not begun, in the order in which a policy wants to begin them.
 *
 * oldest: by start order. longest: a few of each group first, to learn how long its members become; then those of the
 * groups that seem to become longest, so that the end of a step is not spent waiting for them.
 * Invariant: one that has waited much longer than trajectories live goes ahead of all, so that none waits for ever.
 */
import type { GroupId } from '../../messages/ids'
import { Heap, type HeapItem } from './heap'
import type { LengthModel } from './lengthModel'
import type { StartOrder } from './policy'
import { type Member, oldestFirst } from './seat'

/** Members of a group that begin before any is preferred for its length. */
const probes = 4
/** How many lives of a trajectory one may wait before it goes ahead. */
const patienceLives = 20

interface Waiting extends HeapItem {
  readonly group: GroupId
  readonly members: Heap<Member>
  begun: number
  factor: number
}

interface Place extends HeapItem {
  readonly member: Member
  /** When it was first looked at as one that waits. */
  sinceMs: number
}

const probed = ({ begun }: Waiting): number => (begun < probes ? 0 : 1)

export class FreshQueue {
  private readonly groups = new Map<GroupId, Waiting>()
  private readonly byGroup = new Heap<Waiting>(
    (a, b) => probed(a) - probed(b) || a.factor - b.factor || oldestFirst(a.members.peek()!, b.members.peek()!),
  )
  private readonly places = new Map<Member, Place>()
  private readonly byAge = new Heap<Place>((a, b) => oldestFirst(a.member, b.member))
  private unseen: Place[] = []
  private livesMs = 0
  private lives = 0

  constructor(
    private readonly order: StartOrder,
    private readonly lengths: LengthModel,
  ) {}

  get size(): number {
    return this.places.size
  }

  /** One that has waited longer goes ahead. Infinity before a trajectory has ended. */
  get patienceMs(): number {
    return this.lives === 0 ? Number.POSITIVE_INFINITY : (patienceLives * this.livesMs) / this.lives
  }

  /** The one that is to begin next. */
  peek(nowMs: number): Member | undefined {
    for (const place of this.unseen) place.sinceMs = nowMs
    if (this.unseen.length > 0) this.unseen = []
    const oldest = this.byAge.peek()
    if (oldest === undefined || this.order === 'oldest') return oldest?.member
    if (nowMs - oldest.sinceMs > this.patienceMs) return oldest.member
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

  /** Takes one out: it begins, or is gone. */
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

  /** A group's lengths are known better. */
  learnt(group: GroupId): void {
    const waiting = this.groups.get(group)
    if (waiting === undefined || this.order === 'oldest') return
    this.byGroup.remove(waiting)
    waiting.factor = this.lengths.factor(group)
    this.byGroup.push(waiting)
  }

  /** A trajectory lived so long, from its beginning to its end. */
  lived(ms: number): void {
    this.livesMs += ms
    this.lives++
  }
}
