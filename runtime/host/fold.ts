/**
 * How a host comes to its behaviour's state: what is folded of which partition, live and again after a restart.
 *
 * in   entries, in the log's order        out  states; what the behaviour decides once it is live
 * Invariant: each fact is folded once, and nothing is decided before a partition's live point. A message that crashes the
 * actor again and again goes to the dead letters, and refolds leave it out from then on.
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

export interface Place {
  readonly topic: TopicName
  readonly partition: number
  /** Where this host's fold began. */
  readonly begin: number
  /** The next offset to take. Before it nothing is decided; it outlives restarts, so that a refold ends there. */
  next: number
}

export interface Cell<S> {
  /** In the order of the feeds: a refold reads one topic after the other, and states do not depend on more than that. */
  readonly places: Map<string, Place>
  state: S
  live: boolean
  /** Delivered and not taken yet, in each partition's order. It outlives restarts: what follows one that crashes is not lost. */
  readonly held: Entry[]
  /** What is pending is to be asked, for a behaviour that decides by its state alone. */
  due: boolean
}

export const newCell = <S>(state: S): Cell<S> => ({ places: new Map(), state, live: false, held: [], due: false })

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

  /** Folds what a live cell was handed; what follows from it is added to `decisions`. */
  async function take(cell: Cell<S>, decisions: Decided<R>[]): Promise<void> {
    let taken = 0
    try {
      for (const entry of cell.held) {
        await takeOne(cell, entry, decisions)
        taken++
      }
    } finally {
      cell.held.splice(0, taken)
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
      await survive(entry, asError(thrown))
    }
    place.next = entry.offset + 1
  }

  const entryName = (entry: Entry) => `${placeKey(entry.topic, entry.partition)}@${entry.offset}`

  /** A message may crash its actor twice; the third time it goes to the dead letters and the actor goes on. */
  async function survive(entry: Entry, error: Error): Promise<void> {
    const count = (crashes.get(entryName(entry)) ?? 0) + 1
    crashes.set(entryName(entry), count)
    if (count < maxCrashes) throw error
    log.error({ err: error, entry: entryName(entry) }, `${options.name} gave a message up`)
    await journal.refuse(entry, error)
  }

  /** Folds everything before the live point and decides nothing, then asks what has no answer. */
  async function refold(cell: Cell<S>): Promise<readonly Decided<R>[]> {
    cell.state = behaviour.initial()
    for (const feed of options.feeds) {
      for (const place of [...cell.places.values()].filter(p => p.topic === feed.topic)) {
        if (options.owner !== undefined || options.begin !== undefined) await foldClaimsBefore(cell, place)
        for await (const entries of journal.readTo(place.topic, place.partition, place.begin, place.next)) {
          for (const entry of entries) {
            const givenUp = (crashes.get(entryName(entry)) ?? 0) >= maxCrashes
            if (isFact(entry.message) && !givenUp) fold(cell, entry, entry.message)
          }
        }
      }
    }
    cell.due = true
    return behaviour.decide === undefined ? [] : [behaviour.pending(cell.state, fx)]
  }

  /**
   * A live cell after a failure: what it had folded, then what it was handed since. Where a behaviour decides by its state
   * alone, all that is in the log comes before: what it had to say may stand there in part, and what it says next depends on it.
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
      cell.held.push(...entries)
      await take(cell, decisions)
    }
    place.next = Math.max(place.next, next) // the last ones may be records that could not be read
  }

  /** A refold that begins in the middle of a partition needs the claims under which its first facts were said. */
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

  /** Every partition is there: from now on it decides, first about what came meanwhile. */
  async function goLive(cell: Cell<S>): Promise<readonly Decided<R>[]> {
    const decisions = [...(await refold(cell))]
    cell.live = true
    await take(cell, decisions)
    return decisions
  }

  return { take, revive, goLive }
}
