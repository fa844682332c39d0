/**
 * The host: runs a behaviour as an actor over the journal. The reader of a behaviour need not know this file.
 *
 * in   facts and commands of the feeds, ticks         out  the facts and commands that the behaviour decides, appended
 * Invariant: facts are folded in the log's order and each once; decisions are taken only from the live point on, which is
 * the offset of the claim (owners of partitions) or the log's end at the start. A behaviour without `decide` is asked what is pending only
 * when all that it said is folded, so that it says nothing twice.
 */

import { type Message, routeOf, type TopicName } from '../../messages'
import type { Fact } from '../../messages/facts'
import type { RestartPolicy } from '../actor/restartPolicy'
import type { ActorRef, ActorSystem } from '../actor/system'
import type { Effects } from '../effects'
import { TroupeError } from '../errors'
import type { Entry, Feed, Following, Journal } from '../journal/journal'
import type { Log } from '../log'
import type { Behaviour, Decision } from './behaviour'
import { type Cell, type Decided, hostFold, newCell, type Place, placeKey } from './fold'
import { hostRequests } from './requests'

export interface Answer extends Decision {
  /** Appended once the facts are durable: what must not stand in the log without them. */
  readonly after?: readonly Fact[]
}

/** Runs a request of a behaviour. What it resolves with is appended; what it rejects with restarts the actor. */
export type Port<R> = (request: R, signal: AbortSignal) => Promise<Answer | undefined>

export interface HostOptions<S, I extends Message, R> {
  readonly name: string
  readonly behaviour: Behaviour<S, I, R>
  readonly journal: Journal
  /** Spawns the host's actor: an actor system, or the actor that becomes its parent. */
  readonly system: Pick<ActorSystem, 'spawn'>
  readonly fx: Effects
  readonly log: Log
  readonly feeds: readonly Feed[]
  /** Consumer group; hosts of one group share the partitions. Default: the name. */
  readonly group?: string
  /**
   * Other hosts of the group take their share of the partitions, and this one answers for those it has, keeping no state
   * that needs the rest. Default: this host is alone in its group, and reads all partitions without a gap.
   */
  readonly shared?: boolean
  /** One state for each partition of the only feed, claimed by this owner, instead of one for all. */
  readonly owner?: string
  readonly perform?: Port<R>
  /** Two requests with one key are the same request. */
  readonly keyOf?: (request: R) => string
  readonly tickMs?: number
  /**
   * At least so long between two batches of a partition, ms: for who only counts what others do, and would be woken for
   * every record. Default 0.
   */
  readonly lingerMs?: number
  /** Before it a refold needs nothing of a feed that is followed from the oldest. Default: all is needed. */
  readonly begin?: (topic: TopicName, partition: number) => number
  /** Offset from which a refold must begin to find everything that is open; committed at every tick. */
  readonly oldestOpen?: (state: S) => number | undefined
  readonly restart?: Partial<RestartPolicy>
  /**
   * Asked before anything is appended: resolves with true once this process is known to be the one that may, with false
   * when another has taken over, and then what was to be said is dropped. Default: it may.
   */
  readonly mayAct?: () => Promise<boolean>
  /** The actor was restarted too often: it is gone. */
  readonly onFailed: (error: Error) => void
}

export interface Host {
  /** Resolves when every partition was folded to the live point and what was pending was asked again; rejects when it will not be. */
  readonly live: Promise<void>
  /** Takes no more. Requests that run are aborted, after `drainMs` where that is given. */
  close(options?: CloseOptions): Promise<void>
}

export interface CloseOptions {
  /** How long requests that run may take to end by themselves, ms. Default 0. */
  readonly drainMs?: number
}

type Mail =
  | { readonly kind: 'entries'; readonly entries: readonly Entry[]; held: boolean }
  | { readonly kind: 'assigned' }
  | { readonly kind: 'tick' }
  | { readonly kind: 'answered' }
  | { readonly kind: 'failed'; readonly error: Error; reported: boolean }

const mailboxCapacity = 256
const tellDeadlineMs = 60_000

export async function startHost<S, I extends Message, R>(options: HostOptions<S, I, R>): Promise<Host> {
  const { behaviour, journal, fx, log } = options
  const cells = new Map<string, Cell<S>>()
  const committed = new Map<Place, number>()
  let commits = true
  /** The furthest fact of this host's own in every partition. It outlives restarts. */
  const said = new Map<string, number>()
  let markLive: () => void = () => {}
  let neverLive: (why: Error) => void = () => {}
  const live = new Promise<void>((resolve, reject) => {
    markLive = resolve
    neverLive = reject
  })
  live.catch(() => {}) // for who waits for it
  function giveUp(error: Error): void {
    neverLive(error)
    options.onFailed(error)
  }
  let expected = 0
  for (const feed of options.feeds) expected += await journal.partitionsOf(feed.topic)

  const cellKey = (topic: string, partition: number) => (options.owner === undefined ? '' : placeKey(topic, partition))
  const { take, revive, goLive } = hostFold(options)
  const isShared = options.owner !== undefined || options.shared === true
  const isComplete = (cell: Cell<S>) => isShared || cell.places.size === expected

  const closing = new TroupeError('actor.closed', {
    boundary: 'actor',
    retriable: true,
    message: `${options.name} is closing`,
  })
  const ports = hostRequests<R, Answer>({
    perform: options.perform,
    keyOf: options.keyOf ?? (asked => JSON.stringify(asked)),
    // An append over several partitions may stand in part.
    async answered({ facts, commands, after = [] }) {
      await say([...facts, ...commands])
      await say(after)
    },
    async failed(error) {
      // What can never succeed is said at once, not after ten restarts.
      if (error instanceof TroupeError && !error.retriable) giveUp(error)
      else await ref.tell({ kind: 'failed', error, reported: false }, { deadlineMs: tellDeadlineMs })
    },
    over() {
      // Its answer may have been folded before it was over, when it could not be asked again.
      for (const cell of cells.values()) cell.due = true
      ref.tryTell({ kind: 'answered' })
    },
    closing,
    log,
  })

  async function say(messages: readonly Message[]): Promise<void> {
    if (messages.length === 0) return
    if (options.mayAct !== undefined && !(await options.mayAct())) {
      log.warn({ actor: options.name, messages: messages.length }, 'not said: another process has taken over')
      return
    }
    const positions = await journal.append(messages)
    positions.forEach(({ partition, offset }, k) => {
      const key = placeKey(routeOf(messages[k]!, journal.run).topic, partition)
      said.set(key, Math.max(said.get(key) ?? -1, offset))
    })
  }

  const isBehind = (cell: Cell<S>) => [...cell.places].some(([key, { next }]) => (said.get(key) ?? -1) >= next)

  /** What a behaviour that decides by its state alone has to say now. */
  function settle(): Decided<R>[] {
    if (behaviour.decide !== undefined) return []
    const settled = [...cells.values()].filter(cell => cell.live && cell.due && !isBehind(cell))
    for (const cell of settled) cell.due = false
    return settled.map(cell => behaviour.pending(cell.state, fx))
  }

  async function emit(decisions: readonly Decided<R>[]): Promise<void> {
    // Facts first: on a bus without transactions a command must not overtake the fact that it follows from.
    const facts = decisions.flatMap(d => d.facts)
    const commands = decisions.flatMap(d => d.commands)
    await say([...facts, ...commands])
    const requests = decisions.flatMap(d => d.requests ?? [])
    // By its state alone: as long as that lacks what was just said, what it asks for may be out of date.
    if (behaviour.decide !== undefined || ![...cells.values()].some(isBehind)) requests.forEach(ports.ask)
    else for (const cell of cells.values()) cell.due = true
  }

  async function handle(mail: Mail): Promise<void> {
    const decisions: Decided<R>[] = []
    switch (mail.kind) {
      case 'entries': {
        // All of one partition, and so of one cell.
        const { topic, partition } = mail.entries[0]!
        const cell = cells.get(cellKey(topic, partition))
        if (!mail.held) cell?.held.push(...mail.entries)
        mail.held = true
        if (cell?.live) await take(cell, decisions)
        break
      }
      case 'assigned':
        for (const cell of cells.values()) {
          if (!cell.live && isComplete(cell)) decisions.push(...(await goLive(cell)))
        }
        break
      case 'tick':
        for (const cell of cells.values()) {
          if (!cell.live) continue
          if (behaviour.decide !== undefined) decisions.push(behaviour.decide(cell.state, { type: 'tick' }, fx))
          await commit(cell)
        }
        break
      case 'failed':
        if (mail.reported) break
        mail.reported = true
        throw mail.error
    }
    await emit([...decisions, ...settle()])
    if (cells.size > 0 && [...cells.values()].every(c => c.live)) markLive()
  }

  async function commit(cell: Cell<S>): Promise<void> {
    if (options.oldestOpen === undefined) return
    const oldest = options.oldestOpen(cell.state)
    for (const place of cell.places.values()) {
      const offset = oldest ?? place.next
      if (committed.get(place) === offset) continue
      try {
        await following.commit(place.topic, place.partition, offset)
        committed.set(place, offset)
        commits = true
      } catch (thrown) {
        // Its partition is another's by now, or the next tick commits it. At worst a resume reads more: no reason to ask anybody again.
        if (commits) log.warn({ actor: options.name, ...place, err: thrown }, 'an offset could not be committed')
        commits = false
      }
    }
  }

  const ref: ActorRef<Mail> = await options.system.spawn<Mail>({
    name: options.name,
    kind: 'behaviour',
    mailbox: { capacity: mailboxCapacity },
    async start() {
      for (const cell of cells.values()) if (cell.live) await emit(await revive(cell))
      await emit(settle())
      return handle
    },
    onEscalate: giveUp,
    // Which message crashes it is counted entry by entry; the mail that brought it is never put aside.
    restart: { attemptsPerMessage: Number.POSITIVE_INFINITY, ...options.restart },
  })

  async function assigned(topic: TopicName, partition: number): Promise<number> {
    const feed = options.feeds.find(f => f.topic === topic)!
    const key = cellKey(topic, partition)
    // One that the group had given up, and that comes back: what was said meanwhile is not to be missed.
    const known = isShared ? undefined : cells.get(key)?.places.get(placeKey(topic, partition))
    const { oldest, next } = await journal.offsets(topic, partition)
    if (known !== undefined) return Math.max(known.next, oldest)
    const from = feed.from === 'committed' ? await journal.committed(groupName, topic, partition) : undefined
    let liveFrom = next
    if (options.owner !== undefined) {
      const claim = { type: 'partition.claimed', at: fx.now(), partition, owner: options.owner } as const
      liveFrom = (await journal.appendTo(partition, claim)).offset + 1
    }
    const needed = feed.from === 'oldest' ? options.begin?.(topic, partition) : from
    const begin = feed.from === 'latest' ? liveFrom : Math.min(liveFrom, Math.max(oldest, needed ?? oldest))
    const cell = cells.get(key) ?? newCell(behaviour.initial())
    cells.set(key, cell)
    cell.places.set(placeKey(topic, partition), { topic, partition, begin, next: liveFrom })
    await ref.tell({ kind: 'assigned' }, { deadlineMs: tellDeadlineMs })
    return liveFrom
  }

  const groupName = options.group ?? options.name
  const following: Following = await journal.follow(
    {
      group: groupName,
      feeds: options.feeds,
      ...(options.lingerMs === undefined ? {} : { lingerMs: options.lingerMs }),
      onAssigned: assigned,
      onRevoked: async (topic, partition) => {
        if (options.owner !== undefined) cells.delete(cellKey(topic, partition))
      },
      onError: giveUp,
    },
    entries => ref.tell({ kind: 'entries', entries, held: false }, { deadlineMs: tellDeadlineMs }),
  )
  const ticking = setInterval(() => ref.tryTell({ kind: 'tick' }), options.tickMs ?? 250)

  return {
    live,
    async close({ drainMs = 0 } = {}) {
      clearInterval(ticking)
      neverLive(closing)
      await following.close()
      await ref.stop({ drain: true, deadlineMs: 10_000 })
      await ports.close(drainMs)
    },
  }
}
