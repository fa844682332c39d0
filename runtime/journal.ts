/**
 * The journal: a run's messages on a bus. It routes, encodes, decodes, and spills what is too large for a record.
 *
 * in   messages to append, topics to follow        out  the same messages with where they stood
 * Invariant: a follower sees every readable message in order; a record that cannot be read goes to `dead-letters` with
 * its error and its origin, and the follower goes on.
 */
import { decode, encode, type Message, maxRecordBytes, type TopicName, topicOnBus, topics } from '../messages'
import type { RunId } from '../messages/ids'
import type { BlobStore } from './bus/blobs'
import type { Bus, BusRecord, NewRecord, Position, Subscription } from './bus/bus'
import { asError, TroupeError } from './errors'

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
  /** As append, to a partition by number: `partition.claimed` is for the partition, not for a key. */
  appendTo(partition: number, message: Message): Promise<Position>
  read(topic: TopicName, partition: number, offset: number, max?: number): Promise<readonly Entry[]>
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

export function openJournal(bus: Bus, blobs: BlobStore, run: RunId): Journal {
  const nameOf = new Map<string, TopicName>(Object.values(topics).map(t => [topicOnBus(run, t.name), t.name]))
  const memory = new Map<string, { offset: number; entry: Entry }[]>()

  const groupOnBus = (group: string, from: Feed['from']) => `troupe.${run}.${group}.${from}`

  async function toRecord(message: Message): Promise<NewRecord> {
    const { topic, key, headers, value } = encode(message, { run, maxBytes: Number.POSITIVE_INFINITY })
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
      await journal.deadLetter(record, asError(thrown))
      return undefined
    }
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
      await bus.createTopics(
        Object.values(topics).map(t => ({
          topic: topicOnBus(run, t.name),
          partitions: t.single ? 1 : partitions,
          retentionMs: t.retentionMs,
        })),
      )
    },
    async partitionsOf(topic) {
      const name = topicOnBus(run, topic)
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
    async appendTo(partition, message) {
      const positions = await bus.append([{ ...(await toRecord(message)), partition }])
      return positions[0]!
    },
    async read(topic, partition, offset, max) {
      return toEntries(await bus.read(topicOnBus(run, topic), partition, offset, max))
    },
    offsets: (topic, partition) => bus.offsets(topicOnBus(run, topic), partition),
    committed: (group, topic, partition) =>
      bus.committed(groupOnBus(group, 'committed'), topicOnBus(run, topic), partition),
    async follow(options, handler) {
      const subscriptions = new Map<Feed['from'], Subscription>()
      // Feeds that begin alike share a subscription; a group's name says where it began, so that commits do not mix.
      for (const from of new Set(options.feeds.map(f => f.from))) {
        const feeds = options.feeds.filter(f => f.from === from)
        subscriptions.set(
          from,
          await bus.subscribe(
            {
              topics: feeds.map(f => topicOnBus(run, f.topic)),
              group: groupOnBus(options.group, from),
              from: from === 'latest' ? 'latest' : 'earliest',
              onAssigned: async ({ topic, partition }) => {
                const chosen = await options.onAssigned?.(nameOf.get(topic)!, partition)
                if (chosen !== undefined || from === 'committed') return chosen
                const { oldest, next } = await bus.offsets(topic, partition)
                return from === 'latest' ? next : oldest
              },
              onRevoked: async ({ topic, partition }) => options.onRevoked?.(nameOf.get(topic)!, partition),
              onError: options.onError,
            },
            async records => {
              const entries = await toEntries(records)
              if (entries.length > 0) await handler(entries)
            },
          ),
        )
      }
      return {
        async commit(topic, partition, offset) {
          const feed = options.feeds.find(f => f.topic === topic)
          if (feed === undefined) throw new RangeError(`group '${options.group}' does not follow '${topic}'`)
          await subscriptions.get(feed.from)?.commit({ topic: topicOnBus(run, topic), partition, offset })
        },
        async close() {
          for (const subscription of subscriptions.values()) await subscription.close()
        },
      }
    },
    async refuse(entry, error) {
      const { topic, partition, offset, timestamp } = entry
      const record = await toRecord(entry.message)
      await journal.deadLetter({ ...record, topic: topicOnBus(run, topic), partition, offset, timestamp }, error)
    },
    async deadLetter(record, error) {
      const origin = `${record.topic}:${record.partition}:${record.offset}`
      const headers = { ...record.headers, origin, error: error.message.slice(0, 1000) }
      const value = record.value.byteLength <= maxRecordBytes ? record.value : record.value.subarray(0, maxRecordBytes)
      await bus.append([{ topic: topicOnBus(run, 'dead-letters'), key: origin, headers, value }])
    },
  }
  return journal
}
