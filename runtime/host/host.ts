/**
 * The host: runs a behaviour as an actor over the journal.
 *
 * in   facts and commands of the feeds, ticks, the port's answers
 * out  facts and commands that the behaviour decides or the port answers with, appended; requests to the port
 * Invariant: each fact is folded at most once, in the log's order. Decisions are taken only from the live point on: for
 * an owner of partitions the offset after its claim (the fact by which it takes a partition), else the log's end at the
 * start. `pending` of a behaviour without `decide` is called only when all facts that this host appended are folded, so
 * that it decides nothing twice.
 */
import { type Message, routeOf, type TopicName } from '../../messages'
import type { Fact } from '../../messages/facts'
import type { RestartPolicy } from '../actor/restartPolicy'
import type { ActorRef, ActorSystem } from '../actor/system'
import { type Effects, everyOn } from '../effects'
import { TroupeError } from '../errors'
import type { Entry, Feed, Following, Journal } from '../journal/journal'
import type { Log } from '../log'
import type { Behaviour, Decision } from './behaviour'
import { type Cell, type Decided, hostFold, newCell, type Place, placeKey } from './fold'
import { hostMail } from './mail'
import { hostRequests } from './requests'

/** Answer of a port: messages that the host appends. */
export interface Answer extends Decision {
  /**
   * Facts appended once the answer's other messages are durable, since these facts must not be in the log without those
   * messages.
   */
  readonly after?: readonly Fact[]
}

/**
 * Runs a request of a behaviour. Its answer, if any, is appended. A rejection restarts the actor, or ends the host if
 * the error is a TroupeError that is not retriable.
 */
export type Port<R> = (request: R, signal: AbortSignal) => Promise<Answer | undefined>

export interface HostOptions<S, I extends Message, R> {
  readonly name: string
  readonly behaviour: Behaviour<S, I, R>
  readonly journal: Journal
  /** Parent under which the host's actor is spawned: an actor system, or another actor. */
  readonly system: Pick<ActorSystem, 'spawn'>
  readonly fx: Effects
  readonly log: Log
  readonly feeds: readonly Feed[]
  /** Consumer group; hosts of a group share the partitions. Default: the host's name. */
  readonly group?: string
  /**
   * True if several hosts share the group's partitions, and each needs only its own partitions for its state. Default:
   * this host is the only one in its group, and reads all partitions without a gap.
   */
  readonly shared?: boolean
  /**
   * Name of the owner. If set, the host appends a claim (`partition.claimed`) to each partition of its only feed that
   * it gets, and keeps a separate state for each.
   */
  readonly owner?: string
  readonly perform?: Port<R>
  /** Returns a request's key; requests with equal keys count as the same request. */
  readonly keyOf?: (request: R) => string
  /** Interval of ticks, ms. Default 250. */
  readonly tickMs?: number
  /**
   * Minimum time from the end of a batch's delivery to the next batch of the same partition, ms, for a behaviour that
   * only counts and would be woken for every record. Default 0.
   */
  readonly lingerMs?: number
  /**
   * Returns the offset from which a refold (rebuilding the state from the log) must read, for a feed that is followed
   * from the oldest. Default: the oldest.
   */
  readonly begin?: (topic: TopicName, partition: number) => number
  /**
   * Returns the offset from which a refold must begin to see everything unfinished; undefined when nothing is
   * unfinished. At every tick the host commits this offset (else the next one to fold), if it has changed.
   */
  readonly oldestOpen?: (state: S) => number | undefined
  readonly restart?: Partial<RestartPolicy>
  /**
   * Called before messages of decisions and answers are appended. Resolves with true once this process certainly leads
   * its role, with false when another process has taken over; then the messages are dropped. Default: always true.
   */
  readonly mayAct?: () => Promise<boolean>
  /**
   * Called when the host has failed for good: its restarts are used up, or its subscription or a request failed
   * permanently.
   */
  readonly onFailed: (error: Error) => void
}

export interface Host {
  /**
   * Resolves when every partition is folded to its live point and pending requests are made again; rejects if the host
   * fails for good or closes before that.
   */
  readonly live: Promise<void>
  /** Stops the actor. Running requests are aborted, after `drainMs` if that is set. */
  close(options?: CloseOptions): Promise<void>
}

export interface CloseOptions {
  /** Milliseconds in which running requests may end by themselves. Default 0. */
  readonly drainMs?: number
}

type Mail =
  | { readonly kind: 'entries'; readonly entries: readonly Entry[]; isQueued: boolean }
  | { readonly kind: 'assigned' }
  | { readonly kind: 'tick' }
  | { readonly kind: 'answered' }
  | { readonly kind: 'failed'; readonly error: Error; reported: boolean }

const mailboxCapacity = 256

export async function startHost<S, I extends Message, R>(options: HostOptions<S, I, R>): Promise<Host> {
  const { behaviour, journal, fx, log } = options
  const cells = new Map<string, Cell<S>>()
  const committed = new Map<Place, number>()
  let commits = true
  /** Highest offset of this host's own messages, by partition. It survives restarts. */
  const ownOffsets = new Map<string, number>()
  let markLive: () => void = () => {}
  let neverLive: (why: Error) => void = () => {}
  const live = new Promise<void>((resolve, reject) => {
    markLive = resolve
    neverLive = reject
  })
  live.catch(() => {}) // prevents an unhandled rejection: the code that awaits `live` handles the error
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
    message: `the host of the actor ${options.name} is closing`,
  })
  const ports = hostRequests<R, Answer>({
    perform: options.perform,
    keyOf: options.keyOf ?? (asked => JSON.stringify(asked)),
    // Two appends, since an append to several partitions may fail halfway: `after` must not be in the log alone.
    async answered({ facts, commands, after = [] }) {
      await appendOwn([...facts, ...commands])
      await appendOwn(after)
    },
    async failed(error) {
      // A permanent error ends the host at once: no restart can help.
      if (error instanceof TroupeError && !error.retriable) giveUp(error)
      else await mailing.post({ kind: 'failed', error, reported: false })
    },
    over() {
      // The request's answer may have been folded while the request still counted as running and could not be made
      // again, so `pending` has to be called.
      for (const cell of cells.values()) cell.due = true
      ref.tryTell({ kind: 'answered' })
    },
    closing,
    log,
  })

  async function appendOwn(messages: readonly Message[]): Promise<void> {
    if (messages.length === 0) return
    if (options.mayAct !== undefined && !(await options.mayAct())) {
      log.warn({ actor: options.name, messages: messages.length }, 'messages dropped: another process has taken over')
      return
    }
    const positions = await journal.append(messages)
    positions.forEach(({ partition, offset }, k) => {
      const key = placeKey(routeOf(messages[k]!, journal.run).topic, partition)
      ownOffsets.set(key, Math.max(ownOffsets.get(key) ?? -1, offset))
    })
  }

  const isBehind = (cell: Cell<S>) => [...cell.places].some(([key, { next }]) => (ownOffsets.get(key) ?? -1) >= next)

  /** Takes the decisions of a behaviour that decides by its state alone. */
  function decidePending(): Decided<R>[] {
    if (behaviour.decide !== undefined) return []
    const settled = [...cells.values()].filter(cell => cell.live && cell.due && !isBehind(cell))
    for (const cell of settled) cell.due = false
    return settled.map(cell => behaviour.pending(cell.state, fx))
  }

  async function emit(decisions: readonly Decided<R>[]): Promise<void> {
    // Facts are appended first: without transactions a command must not overtake the fact that it follows from.
    const facts = decisions.flatMap(d => d.facts)
    const commands = decisions.flatMap(d => d.commands)
    await appendOwn([...facts, ...commands])
    const requests = decisions.flatMap(d => d.requests ?? [])
    // Until the own facts of a behaviour that decides by its state alone are folded, its requests may be out of date.
    if (behaviour.decide !== undefined || ![...cells.values()].some(isBehind)) requests.forEach(ports.ask)
    else for (const cell of cells.values()) cell.due = true
  }

  async function handle(mail: Mail): Promise<void> {
    const decisions: Decided<R>[] = []
    switch (mail.kind) {
      case 'entries': {
        // All entries belong to one partition, and so to one state.
        const { topic, partition } = mail.entries[0]!
        const cell = cells.get(cellKey(topic, partition))
        if (!mail.isQueued) cell?.delivered.push(...mail.entries)
        mail.isQueued = true
        if (cell?.live) await take(cell, decisions)
        break
      }
      case 'assigned':
        for (const cell of cells.values()) {
          if (!cell.live && isComplete(cell)) decisions.push(...(await goLive(cell)))
        }
        break
      case 'tick':
        mailing.tickHandled()
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
    await emit([...decisions, ...decidePending()])
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
        // Harmless: another member owns the partition, or the next tick commits; at worst a resume reads more records.
        if (commits) log.warn({ actor: options.name, ...place, err: thrown }, 'an offset could not be committed')
        commits = false
      }
    }
  }

  const mailing = hostMail<Mail>(() => ref, { kind: 'tick' }, fx)
  const ref: ActorRef<Mail> = await options.system.spawn<Mail>({
    name: options.name,
    kind: 'behaviour',
    mailbox: { capacity: mailboxCapacity },
    async start() {
      for (const cell of cells.values()) if (cell.live) await emit(await revive(cell))
      await emit(decidePending())
      return handle
    },
    onEscalate: giveUp,
    // fold.ts counts crashes for each entry; the mail (batch of entries) with the entry is never dropped.
    restart: { attemptsPerMessage: Number.POSITIVE_INFINITY, ...options.restart },
  })

  async function assigned(topic: TopicName, partition: number): Promise<number> {
    const feed = options.feeds.find(f => f.topic === topic)!
    const key = cellKey(topic, partition)
    // The group may take a partition away and give it back: entries appended meanwhile must not be missed.
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
    await mailing.post({ kind: 'assigned' })
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
    entries => mailing.post({ kind: 'entries', entries, isQueued: false }),
  )
  const stopTicking = everyOn(fx, options.tickMs ?? 250, mailing.tick)

  return {
    live,
    async close({ drainMs = 0 } = {}) {
      stopTicking()
      neverLive(closing)
      await following.close()
      await ref.stop({ drain: true, deadlineMs: 10_000 })
      await ports.close(drainMs)
    },
  }
}
