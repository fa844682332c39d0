/**
 * Opens the journal of a run over a bus: routes, encodes and decodes messages, and puts large ones into the blob store.
 *
 * in   a bus, a blob store, a run      out  its Journal
 * Invariant: a message too large for a record is stored in the blob store; its record holds the digest, the size and
 * a preview. A journal reports an unreadable record once while the record is in its cache, however many followers meet
 * it. No known secret is in a message's texts from outside (withoutSecrets.ts).
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { decode, encode, type Message, maxRecordBytes, type TopicName, topicOnBus, topics } from '../../messages'
import type { RunId } from '../../messages/ids'
import { isFact } from '../../messages/isFact'
import { awaitOffset, type Bounds } from '../bus/awaitOffset'
import type { BlobStore } from '../bus/blobs'
import type { Bus, BusRecord, NewRecord, Subscription } from '../bus/bus'
import { busErrors } from '../bus/busErrors'
import { systemEffects } from '../effects'
import { asError, TroupeError } from '../errors'
import { excerpt } from '../secrets/knownSecrets'
import type { Entry, Feed, Journal, TopicsOnBus, Unreadable } from './journal'
import { checkTopicNames, partitionsFor } from './topicNames'
import { withoutSecrets } from './withoutSecrets'

const previewBytes = 256
/**
 * Number of decoded messages that are cached for each partition, since several followers of one process read the same
 * records.
 */
const cachedPerPartition = 4096
/** Upper bound on the records of one read. */
const readAtOnce = 1024

/**
 * Opens the journal.
 * @param names topics that have another name on the bus
 * @param unreadable default: copies the record to the run's dead letters, to which a process that only reads must not
 * write
 * @throws TroupeError config.topic_unknown; config.topics_collide if two topics would have the same name on the bus
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
  checkTopicNames(names, nameOf.size)
  // Maps the topic names that `encode` chooses, which are the run's own, to the names on the bus.
  const readdressed = new Map(
    Object.entries(names).map(([topic, name]) => [topicOnBus(run, topic as TopicName), name] as const),
  )
  /**
   * Ring of decoded records, by partition; the slot of an offset is offset modulo 4096. A slot without an entry means
   * that the record was reported as unreadable.
   */
  const cache = new Map<string, { offset: number; entry?: Entry }[]>()

  /** Name of this process's journal in the headers of facts whose writer has a role. */
  const writer = systemEffects.unique().slice(0, 8)

  const groupOnBus = (group: string, from: Feed['from']) => `troupe.${run}.${group}.${from}`

  async function toRecord(message: Message): Promise<NewRecord> {
    const safe = withoutSecrets(message)
    const { topic: usual, key, headers: own, value } = encode(safe, { run, maxBytes: Number.POSITIVE_INFINITY })
    const headers = isOfRole(message) ? { ...own, writer } : own
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

  async function toEntry(record: BusRecord, keeps: boolean): Promise<Entry | undefined> {
    const place = `${record.topic}#${record.partition}`
    let ring = cache.get(place)
    if (ring === undefined) {
      ring = []
      cache.set(place, ring)
    }
    const slot = ring[record.offset % cachedPerPartition]
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
        ...(record.headers.writer === undefined ? {} : { writer: record.headers.writer }),
      }
      if (keeps) ring[record.offset % cachedPerPartition] = { offset: record.offset, entry }
      return entry
    } catch (thrown) {
      // Several followers and every refold (rebuilding a state from the log) meet the unreadable record; while it is in
      // the ring, it is not reported again.
      const reported = { offset: record.offset }
      ring[record.offset % cachedPerPartition] = reported
      try {
        await (unreadable ?? journal.deadLetter)(record, asError(thrown))
      } catch (unreported) {
        reported.offset = -1
        throw unreported
      }
      return undefined
    }
  }

  /** Reads records from `at` on. Empty only if the partition has a gap there that reaches at least to `to`. */
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

  /** Decodes records, without the unreadable ones. Records below the offset `keptFrom` are not cached. */
  async function toEntries(records: readonly BusRecord[], keptFrom = 0): Promise<Entry[]> {
    const entries: Entry[] = []
    for (const record of records) {
      const entry = await toEntry(record, record.offset >= keptFrom)
      if (entry !== undefined) entries.push(entry)
    }
    return entries
  }

  const journal: Journal = {
    run,
    async create(partitions, commandRetentionMs) {
      const there = new Map((await bus.listTopics()).map(config => [config.topic, config]))
      const wanted = Object.values(topics).map(t => ({
        topic: onBus(t.name),
        // A topic that the user created keeps its partitions, unless it must have a single one.
        partitions: partitionsFor(
          t,
          partitions,
          names[t.name] === undefined ? undefined : there.get(onBus(t.name))?.partitions,
        ),
        retentionMs: t.holds === 'commands' ? (commandRetentionMs ?? t.retentionMs) : t.retentionMs,
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
          hint: 'check the name of the run: `troupe replay runs` lists the runs of a bus',
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
        // An embedded bus reads without I/O: unless the loop gives up its turn, a long read would block the event loop
        // from begin to end.
        if (at > from) await nextTurn()
        const records = await readBelow(onBus(topic), partition, at, to)
        if (records.length === 0) return // the partition has a gap up to `to`
        at = records.at(-1)!.offset + 1
        yield await toEntries(at <= to ? records : records.filter(({ offset }) => offset < to), to - cachedPerPartition)
      }
    },
    offsets: (topic, partition) => bus.offsets(onBus(topic), partition),
    committed: (group, topic, partition) => bus.committed(groupOnBus(group, 'committed'), onBus(topic), partition),
    async follow(options, handler) {
      const subscriptions = new Map<Feed['from'], Subscription>()
      /** Next offset by partition, for a partition that the group takes away and gives back. */
      const reached = new Map<string, number>()
      // Feeds with the same beginning share a subscription. The beginning is part of the group's name, so that commits
      // do not mix.
      for (const from of new Set(options.feeds.map(f => f.from))) {
        const feeds = options.feeds.filter(f => f.from === from)
        const keys = new Map(feeds.flatMap(f => (f.key === undefined ? [] : [[onBus(f.topic), f.key] as const])))
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
              const wanted = keys.get(records[0]!.topic)
              const entries = await toEntries(wanted === undefined ? records : records.filter(r => r.key === wanted))
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
      const headers = { ...record.headers, origin, error: excerpt(error.message, 1000) }
      const value = record.value.byteLength <= maxRecordBytes ? record.value : record.value.subarray(0, maxRecordBytes)
      const refused = await toRecord({ type: 'record.refused', at: record.timestamp, origin, error: headers.error })
      await bus.append([{ topic: onBus('dead-letters'), key: origin, headers, value }, refused])
    },
  }
  return journal
}

/**
 * True for claims of roles and for facts that only the process with the role may write. Their records have a header
 * `writer`, so that two processes that act in one role can be distinguished (`replay verify`).
 */
const isOfRole = (message: Message): boolean =>
  ('epoch' in message && isFact(message)) ||
  'learnerEpoch' in message ||
  'owner' in message ||
  message.type === 'rollout.started'
