/**
 * The journal: a run's messages on a bus. It routes, encodes, decodes, and spills what is too large for a record.
 *
 * in   messages to append, topics to follow        out  the same messages with where they stood
 * Invariant: a follower sees every readable message in order; a record that cannot be read goes to `dead-letters` with
 * its error and its origin, and a fact says so, unless the journal is there to be read only; the follower goes on.
 */
import {
  decode,
  encode,
  type Message,
  maxRecordBytes,
  type TopicName,
  type TopicSpec,
  topicOnBus,
  topics,
} from '../../messages'
import type { RunId } from '../../messages/ids'
import { awaitOffset, type Bounds } from '../bus/awaitOffset'
import type { BlobStore } from '../bus/blobs'
import type { Bus, BusRecord, NewRecord, Position, Subscription } from '../bus/bus'
import { busErrors } from '../bus/busErrors'
import { asError, TroupeError } from '../errors'

const previewBytes = 256
/** Decoded messages are remembered, because several followers of one process read the same records. */
const rememberedPerPartition = 4096

export interface Entry {
  readonly message: Message
  readonly topic: TopicName
  readonly partition: number
  readonly offset: number
  /** ms since 1970, when it was appended. */
  readonly timestamp: number
}

export interface Feed {
  readonly topic: TopicName
  /** committed: where the group got to, else the oldest. */
  readonly from: 'oldest' | 'committed' | 'latest'
}

export interface FollowOptions {
  readonly group: string
  readonly feeds: readonly Feed[]
  /** At least so long between two batches of a partition, ms. Default 0. */
  readonly lingerMs?: number
  readonly onAssigned?: (topic: TopicName, partition: number) => Promise<number | undefined>
  readonly onRevoked?: (topic: TopicName, partition: number) => Promise<void>
  readonly onError: (error: Error) => void
}

export interface Following {
  commit(topic: TopicName, partition: number, offset: number): Promise<void>
  close(): Promise<void>
}

export interface Journal {
  readonly run: RunId
  /** Creates the run's topics; `partitions` for those that are not single. */
  create(partitions: number): Promise<void>
  partitionsOf(topic: TopicName): Promise<number>
  /** Resolves with the positions once all are durable. */
  append(messages: readonly Message[]): Promise<readonly Position[]>
  /** As append, to a partition by number, where the first one stands: `partition.claimed` is for the partition, not for a key. */
  appendTo(partition: number, ...messages: readonly Message[]): Promise<Position>
  read(topic: TopicName, partition: number, offset: number, max?: number): Promise<readonly Entry[]>
  /**
   * Everything readable from `from` up to `to`, in order, in batches. What cannot be read is passed over.
   * @throws TroupeError bus.offset_out_of_range where the partition goes on ending before `to`
   */
  readTo(topic: TopicName, partition: number, from: number, to: number): AsyncIterable<readonly Entry[]>
  offsets(topic: TopicName, partition: number): Promise<{ readonly oldest: number; readonly next: number }>
  /** Where a group that follows from `committed` got to. */
  committed(group: string, topic: TopicName, partition: number): Promise<number | undefined>
  /** The handler gets entries of one partition, in order; it is not called again for it before it resolved. */
  follow(options: FollowOptions, handler: (entries: readonly Entry[]) => Promise<void>): Promise<Following>
  /** A record that could not be read. */
  deadLetter(record: BusRecord, error: Error): Promise<void>
  /** A message that its receiver could not live with. */
  refuse(entry: Entry, error: Error): Promise<void>
}

/** Topics by what they are called on the bus, where that is not `troupe.<run>.<topic>`. */
export type TopicsOnBus = Partial<Readonly<Record<TopicName, string>>>

/** What is done about a record that could not be read. */
export type Unreadable = (record: BusRecord, error: Error) => Promise<void>

const readAtOnce = 1024

/**
 * `unreadable`: default, the record goes to the run's dead letters; who only reads a run does something else.
 * Throws TroupeError `config.topic_unknown`, or `config.topics_collide` when two topics would have one name on the bus.
 */
export function openJournal(
  bus: Bus,
  blobs: BlobStore,
  run: RunId,
  names: TopicsOnBus = {},
  unreadable?: Unreadable,
): Journal {
  const onBus = (topic: TopicName): string => names[topic] ?? topicOnBus(run, topic)
  const nameOf = new Map<string, TopicName>(Object.values(topics).map(t => [onBus(t.name), t.name]))
  const fault = faultOf(names, nameOf.size)
  if (fault !== undefined) throw fault
  // Where encode, which knows only the names of a run, would send a message.
  const readdressed = new Map(
    Object.entries(names).map(([topic, name]) => [topicOnBus(run, topic as TopicName), name] as const),
  )
  /** Without an entry: a record that went to the dead letters already. */
  const memory = new Map<string, { offset: number; entry?: Entry }[]>()

  const groupOnBus = (group: string, from: Feed['from']) => `troupe.${run}.${group}.${from}`

  async function toRecord(message: Message): Promise<NewRecord> {
    const { topic: usual, key, headers, value } = encode(message, { run, maxBytes: Number.POSITIVE_INFINITY })
    const topic = readdressed.get(usual) ?? usual
    if (value.byteLength <= maxRecordBytes) return { topic, key, headers, value }
    const { sha256, bytes } = await blobs.put(value)
    const claim = { sha256, bytes, preview: Buffer.from(value.subarray(0, previewBytes)).toString('latin1') }
    return {
      topic,
      key,
      headers: { ...headers, blob: sha256 },
      value: Buffer.from(JSON.stringify(claim)),
    }
  }

  async function toEntry(record: BusRecord): Promise<Entry | undefined> {
    const place = `${record.topic}#${record.partition}`
    let ring = memory.get(place)
    if (ring === undefined) {
      ring = []
      memory.set(place, ring)
    }
    const slot = ring[record.offset % rememberedPerPartition]
    if (slot?.offset === record.offset) return slot.entry
    try {
      const blob = record.headers.blob
      const value = blob === undefined ? record.value : await blobs.get(blob)
      const entry: Entry = {
        message: decode({ headers: record.headers, value }),
        topic: nameOf.get(record.topic)!,
        partition: record.partition,
        offset: record.offset,
        timestamp: record.timestamp,
      }
      ring[record.offset % rememberedPerPartition] = { offset: record.offset, entry }
      return entry
    } catch (thrown) {
      // Several followers and every refold meet it; it is reported once.
      const reported = { offset: record.offset }
      ring[record.offset % rememberedPerPartition] = reported
      try {
        await (unreadable ?? journal.deadLetter)(record, asError(thrown))
      } catch (unreported) {
        reported.offset = -1
        throw unreported
      }
      return undefined
    }
  }

  /** What stands from `at` on. Empty only where the partition holds nothing there: it reaches as far as `to`. */
  async function readBelow(topic: string, partition: number, at: number, to: number): Promise<readonly BusRecord[]> {
    const read = () => bus.read(topic, partition, at, Math.min(readAtOnce, to - at))
    const records = await read()
    if (records.length > 0) return records
    const { next } = await bus.offsets(topic, partition)
    if (next < to) {
      const tooShort = ({ oldest, next }: Bounds) => busErrors.offsetOutOfRange(topic, partition, to, oldest, next)
      await awaitOffset(to, () => bus.offsets(topic, partition), tooShort)
    }
    return await read()
  }

  async function toEntries(records: readonly BusRecord[]): Promise<Entry[]> {
    const entries: Entry[] = []
    for (const record of records) {
      const entry = await toEntry(record)
      if (entry !== undefined) entries.push(entry)
    }
    return entries
  }

  const journal: Journal = {
    run,
    async create(partitions) {
      const there = new Map((await bus.listTopics()).map(config => [config.topic, config]))
      const wanted = Object.values(topics).map(t => ({
        topic: onBus(t.name),
        // A topic of the user's own is taken as it is, unless it is one that has to be a single partition.
        partitions: partitionsFor(
          t,
          partitions,
          names[t.name] === undefined ? undefined : there.get(onBus(t.name))?.partitions,
        ),
        retentionMs: t.retentionMs,
      }))
      await bus.createTopics(wanted)
    },
    async partitionsOf(topic) {
      const name = onBus(topic)
      const config = (await bus.listTopics()).find(c => c.topic === name)
      if (config === undefined) {
        throw new TroupeError('bus.no_topic', {
          boundary: 'bus',
          retriable: false,
          message: `run '${run}' has no topic '${topic}' on this bus`,
          hint: '`troupe replay ls` lists the runs of a bus',
        })
      }
      return config.partitions
    },
    async append(messages) {
      if (messages.length === 0) return []
      const records: NewRecord[] = []
      for (const message of messages) records.push(await toRecord(message))
      return bus.append(records)
    },
    async appendTo(partition, ...messages) {
      const records: NewRecord[] = []
      for (const message of messages) records.push({ ...(await toRecord(message)), partition })
      const positions = await bus.append(records)
      return positions[0]!
    },
    async read(topic, partition, offset, max) {
      return toEntries(await bus.read(onBus(topic), partition, offset, max))
    },
    async *readTo(topic, partition, from, to) {
      for (let at = from; at < to; ) {
        const records = await readBelow(onBus(topic), partition, at, to)
        if (records.length === 0) return // a gap: nothing stands there
        at = records.at(-1)!.offset + 1
        yield await toEntries(at <= to ? records : records.filter(({ offset }) => offset < to))
      }
    },
    offsets: (topic, partition) => bus.offsets(onBus(topic), partition),
    committed: (group, topic, partition) => bus.committed(groupOnBus(group, 'committed'), onBus(topic), partition),
    async follow(options, handler) {
      const subscriptions = new Map<Feed['from'], Subscription>()
      /** The next offset by place: where to go on when a partition that the group had given up comes back. */
      const reached = new Map<string, number>()
      // Feeds that begin alike share a subscription; a group's name says where it began, so that commits do not mix.
      for (const from of new Set(options.feeds.map(f => f.from))) {
        const feeds = options.feeds.filter(f => f.from === from)
        subscriptions.set(
          from,
          await bus.subscribe(
            {
              topics: feeds.map(f => onBus(f.topic)),
              group: groupOnBus(options.group, from),
              from: from === 'latest' ? 'latest' : 'earliest',
              ...(options.lingerMs === undefined ? {} : { lingerMs: options.lingerMs }),
              onAssigned: async ({ topic, partition }) => {
                const chosen = await options.onAssigned?.(nameOf.get(topic)!, partition)
                if (chosen !== undefined || from === 'committed') return chosen
                const place = `${topic}#${partition}`
                const { oldest, next } = await bus.offsets(topic, partition)
                const begin = Math.max(oldest, reached.get(place) ?? (from === 'latest' ? next : 0))
                reached.set(place, begin)
                return begin
              },
              onRevoked: async ({ topic, partition }) => options.onRevoked?.(nameOf.get(topic)!, partition),
              onError: options.onError,
            },
            async records => {
              const entries = await toEntries(records)
              if (entries.length > 0) await handler(entries)
              const { topic, partition, offset } = records.at(-1)!
              reached.set(`${topic}#${partition}`, offset + 1)
            },
          ),
        )
      }
      return {
        async commit(topic, partition, offset) {
          const feed = options.feeds.find(f => f.topic === topic)
          if (feed === undefined) throw new RangeError(`group '${options.group}' does not follow '${topic}'`)
          await subscriptions.get(feed.from)?.commit({ topic: onBus(topic), partition, offset })
        },
        async close() {
          for (const subscription of subscriptions.values()) await subscription.close()
        },
      }
    },
    async refuse(entry, error) {
      const { topic, partition, offset, timestamp } = entry
      const record = await toRecord(entry.message)
      await journal.deadLetter({ ...record, topic: onBus(topic), partition, offset, timestamp }, error)
    },
    async deadLetter(record, error) {
      const origin = `${record.topic}:${record.partition}:${record.offset}`
      const headers = { ...record.headers, origin, error: error.message.slice(0, 1000) }
      const value = record.value.byteLength <= maxRecordBytes ? record.value : record.value.subarray(0, maxRecordBytes)
      const { error: said } = headers
      const refused = await toRecord({ type: 'record.refused', at: record.timestamp, origin, error: said })
      await bus.append([{ topic: onBus('dead-letters'), key: origin, headers, value }, refused])
    },
  }
  return journal
}

/** `own`: what a topic of the user's own has already. */
function partitionsFor(topic: TopicSpec, wanted: number, own: number | undefined): number {
  if (topic.single && !topic.ownMayBeMany) return 1
  return own ?? (topic.single ? 1 : wanted)
}

function faultOf(names: TopicsOnBus, distinct: number): TroupeError | undefined {
  const common = { boundary: 'config', retriable: false } as const
  const known = Object.keys(topics)
  const unknown = Object.keys(names).find(topic => !known.includes(topic))
  if (unknown !== undefined) {
    const message = `there is no topic '${unknown}' to be named`
    return new TroupeError('config.topic_unknown', { ...common, message, hint: `the topics are ${known.join(', ')}` })
  }
  if (distinct === known.length) return undefined
  const named = Object.entries(names).map(([topic, name]) => `${topic}: ${name}`)
  return new TroupeError('config.topics_collide', {
    ...common,
    message: `two topics have one name on the bus: ${named.join(', ')}`,
    hint: 'give each topic a name of its own',
  })
}
