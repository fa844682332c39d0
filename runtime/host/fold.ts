/**
 * The fold of a host: computes the behaviour's states from the partitions, live and again after a restart (a refold).
 *
 * in   entries, in the log's order        out  states; the behaviour's decisions, once it is live
 * Invariant: nothing is decided about records before a partition's live point (the offset where this host begins to
 * decide). A state gets each fact once, except one on which the actor crashed three times: it becomes a dead letter,
 * and later refolds of this process skip it.
 */
import type { Message, TopicName } from '../../messages'
import type { Fact } from '../../messages/facts'
import { epoch } from '../../messages/ids'
import { isFact } from '../../messages/isFact'
import type { Effects } from '../effects'
import { asError } from '../errors'
import type { Entry, Feed, Journal } from '../journal/journal'
import type { Log } from '../log'
import type { Behaviour, Decision, Origin } from './behaviour'
import { earlierFacts } from './earlierFacts'

/** A partition that a host folds, and its progress. */
export interface Place {
  readonly topic: TopicName
  readonly partition: number
  /** Offset at which this host's fold of the partition began. */
  readonly begin: number
  /**
   * Next offset to fold; nothing is decided about records before it. It survives restarts of the actor, so that a
   * refold ends there.
   */
  next: number
}

/** One state and the partitions that it is folded from. */
export interface Cell<S> {
  /**
   * Partitions in the order of the feeds: a refold reads one topic after the other, and states depend only on the order
   * within a topic.
   */
  readonly places: Map<string, Place>
  state: S
  live: boolean
  /**
   * Entries that were delivered but are not folded yet, in each partition's order. They survive restarts of the actor,
   * so that a crash loses none.
   */
  readonly delivered: Entry[]
  /** True when `pending` must be called, for a behaviour that decides by its state alone. */
  due: boolean
}

export const newCell = <S>(state: S): Cell<S> => ({ places: new Map(), state, live: false, delivered: [], due: false })

export type Decided<R> = Decision & { readonly requests?: readonly R[] }

export interface HostFoldOptions<S, I extends Message, R> {
  readonly name: string
  readonly behaviour: Behaviour<S, I, R>
  readonly journal: Journal
  readonly fx: Effects
  readonly log: Log
  readonly feeds: readonly Feed[]
  readonly owner?: string
  readonly begin?: (topic: TopicName, partition: number) => number
}

const maxCrashes = 3

export const placeKey = (topic: string, partition: number) => `${topic}#${partition}`

export function hostFold<S, I extends Message, R>(options: HostFoldOptions<S, I, R>) {
  const { behaviour, journal, fx, log } = options
  const crashes = new Map<string, number>()

  function fold(cell: Cell<S>, entry: Entry, fact: Fact): boolean {
    const origin: Origin = { topic: entry.topic, partition: entry.partition, offset: entry.offset }
    const before = cell.state
    cell.state = behaviour.evolve(before, fact, origin)
    return cell.state !== before
  }

  /** Folds the delivered entries of a live cell (a state with its partitions), and adds the decisions about them. */
  async function take(cell: Cell<S>, decisions: Decided<R>[]): Promise<void> {
    let taken = 0
    try {
      for (const entry of cell.delivered) {
        await takeOne(cell, entry, decisions)
        taken++
      }
      if (taken > 0 && behaviour.settle !== undefined) decisions.push(behaviour.settle(cell.state, fx))
    } finally {
      cell.delivered.splice(0, taken)
    }
  }

  async function takeOne(cell: Cell<S>, entry: Entry, decisions: Decided<R>[]): Promise<void> {
    const place = cell.places.get(placeKey(entry.topic, entry.partition))
    if (place === undefined || entry.offset < place.next) return
    try {
      const { message } = entry
      const moves = isFact(message) ? fold(cell, entry, message) : true
      if (moves && behaviour.decide === undefined) cell.due = true
      else if (moves) decisions.push(behaviour.decide!(cell.state, message as Fact | I, fx))
    } catch (thrown) {
      await countCrash(entry, asError(thrown))
    }
    place.next = entry.offset + 1
  }

  const entryName = (entry: Entry) => `${placeKey(entry.topic, entry.partition)}@${entry.offset}`

  /**
   * Counts a crash on an entry. Rethrows its error the first two times; the third time the message becomes a dead
   * letter.
   */
  async function countCrash(entry: Entry, error: Error): Promise<void> {
    const count = (crashes.get(entryName(entry)) ?? 0) + 1
    crashes.set(entryName(entry), count)
    if (count < maxCrashes) throw error
    log.error(
      { err: error, entry: entryName(entry) },
      `${options.name} crashed three times on a message, which was copied to dead-letters`,
    )
    await journal.refuse(entry, error)
  }

  /**
   * Folds each partition from its `begin` to its `next` without deciding, and sets `due`. For a behaviour with
   * `decide`, returns what is pending; for a behaviour without `decide`, returns nothing.
   */
  async function refold(cell: Cell<S>): Promise<readonly Decided<R>[]> {
    cell.state = behaviour.initial()
    for (const feed of options.feeds) {
      for (const place of [...cell.places.values()].filter(p => p.topic === feed.topic)) {
        if (options.owner !== undefined || options.begin !== undefined) await foldClaimsBefore(cell, place)
        for await (const entries of journal.readTo(place.topic, place.partition, place.begin, place.next)) {
          for (const entry of entries) {
            const isRefused = (crashes.get(entryName(entry)) ?? 0) >= maxCrashes
            if (isFact(entry.message) && !isRefused) fold(cell, entry, entry.message)
          }
        }
      }
    }
    cell.due = true
    return behaviour.decide === undefined ? [] : [behaviour.pending(cell.state, fx)]
  }

  /**
   * Restores a live cell after a crash: folds what was folded before, then the entries delivered since. A behaviour
   * that decides by its state alone first folds the log to its end: the log may hold a part of its last decision, and
   * its next decision depends on that part.
   */
  async function revive(cell: Cell<S>): Promise<readonly Decided<R>[]> {
    const decisions = [...(await refold(cell))]
    if (behaviour.decide === undefined) for (const place of cell.places.values()) await readOn(cell, place, decisions)
    await take(cell, decisions)
    return decisions
  }

  async function readOn(cell: Cell<S>, place: Place, decisions: Decided<R>[]): Promise<void> {
    const { next } = await journal.offsets(place.topic, place.partition)
    for await (const entries of journal.readTo(place.topic, place.partition, place.next, next)) {
      cell.delivered.push(...entries)
      await take(cell, decisions)
    }
    place.next = Math.max(place.next, next) // `next` may be past the last readable record
  }

  /**
   * Folds the claims in force (facts by which a process takes over the partition or the curriculum) and the highest
   * start order, when a refold begins in the middle of a partition.
   */
  async function foldClaimsBefore(cell: Cell<S>, { topic, partition, begin }: Place): Promise<void> {
    const { owner, curriculum, highestOrder } = await earlierFacts(journal, topic, partition, begin)
    if (curriculum >= 0) {
      const claimed = { at: 0, partition, owner: '', learnerEpoch: epoch(curriculum) }
      const origin = { topic, partition, offset: begin - 1 }
      cell.state = behaviour.evolve(cell.state, { type: 'curriculum.claimed', ...claimed }, origin)
    }
    if (highestOrder >= 0) cell.state = behaviour.asked?.(cell.state, highestOrder) ?? cell.state
    if (owner < 0) return
    const [entry] = await journal.read(topic, partition, owner, 1)
    if (entry?.message.type === 'partition.claimed') fold(cell, entry, entry.message)
  }

  /**
   * Begins to decide, once the cell has its partitions: first about what is pending, then about the entries delivered
   * meanwhile.
   */
  async function goLive(cell: Cell<S>): Promise<readonly Decided<R>[]> {
    const decisions = [...(await refold(cell))]
    cell.live = true
    await take(cell, decisions)
    return decisions
  }

  return { take, revive, goLive }
}
