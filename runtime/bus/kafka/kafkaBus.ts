/**
 * The bus on Apache Kafka, through kafkajs: for one process or many, on any number of hosts.
 *
 * in   `kafka://HOST:PORT[,…]` and settings      out  a Bus whose acknowledged records are on all in-sync replicas
 * Invariants: those of bus.ts. An append of several records is not atomic: if it fails, some of its records may have
 * been appended, and the caller appends all of them again under the same ids. Offsets of a partition grow by one,
 * unless another program writes transactions to its topic.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Bus, BusRecord, NewRecord, Subscription } from '../bus'
import { checkGroup, checkRecord } from '../busChecks'
import { busErrors } from '../busErrors'
import type { PlacedRecord } from '../partitionedLog'
import { partitionOf } from '../partitioner'
import { parseKafkaAddress } from './address'
import { createKafkaClient } from './client'
import { type ConsumerContext, KafkaConsumer } from './consumer'
import { kafkaError } from './errors'
import { KafkaProducer } from './producer'
import { KafkaReader } from './reader'
import { KafkaTail } from './tail'
import { KafkaTopics } from './topics'

const defaultReadRecords = 512
/** Upper bound on the bytes of one read, whatever `max` says; the last answer of a broker may exceed it. */
const maxReadBytes = 16 * 1024 * 1024
const disconnectMs = 3000

/**
 * Connects to the cluster.
 * @throws TroupeError bus.unreachable, bus.denied, bus.tls_failed; the errors of `parseKafkaAddress` and
 * `createKafkaClient`
 */
export async function openKafkaBus(address: string): Promise<Bus> {
  const { brokers, settings } = parseKafkaAddress(address)
  const client = createKafkaClient({ brokers, settings })
  const control = client.cluster()
  const polls = client.cluster()
  try {
    await control.connect()
    await polls.connect()
    await control.refreshMetadata()
    await polls.refreshMetadata()
  } catch (thrown) {
    await inTime(Promise.allSettled([control.disconnect(), polls.disconnect()]))
    client.destroy()
    throw kafkaError(thrown, 'connecting', brokers)
  }
  const { prefix } = settings
  const toWire = (name: string): string => prefix + name
  const fromWire = (name: string): string => (name.startsWith(prefix) ? name.slice(prefix.length) : name)
  const reader = new KafkaReader(client, control, fromWire)
  const tail = new KafkaTail(client, polls, reader)
  const topics = new KafkaTopics(client, control, toWire, fromWire)
  const producer = new KafkaProducer(client, control, fromWire)
  const partitionsOf = (topic: string): Promise<number> => topics.partitionsOf(topic)
  const context: ConsumerContext = { client, reader, tail, toWire, fromWire, partitionsOf }
  const consumers = new Set<KafkaConsumer>()
  /**
   * Number of appends that are not sent yet, because the partition count of a topic is looked up for them or for an
   * earlier append.
   */
  let learning = 0
  let learned: Promise<unknown> = Promise.resolve()
  /** Serialises createTopics: two concurrent calls must not both find the same topic missing. */
  let creating: Promise<void> = Promise.resolve()
  let closing: Promise<void> | undefined

  const open = (): void => {
    if (closing) throw busErrors.closed()
  }
  const checkPartition = (topic: string, partition: number, partitions: number): void => {
    if (Number.isInteger(partition) && partition >= 0 && partition < partitions) return
    throw busErrors.partitionUnknown(topic, partition, partitions)
  }
  const checked = async (topic: string, partition: number): Promise<string> => {
    open()
    const wire = toWire(topic)
    checkPartition(topic, partition, await partitionsOf(wire))
    return wire
  }
  const place = (record: NewRecord): PlacedRecord => {
    const topic = toWire(record.topic)
    const partitions = topics.known(topic)!
    checkRecord(record)
    const { key, headers, value } = record
    if (record.partition !== undefined) checkPartition(record.topic, record.partition, partitions)
    return { topic, key, headers, value, partition: record.partition ?? partitionOf(key, partitions) }
  }

  const bus: Bus = {
    kind: 'kafka',
    createTopics(configs) {
      open()
      const created = creating.then(() => topics.create(configs))
      creating = created.catch(() => {})
      return created
    },
    async listTopics() {
      open()
      return await topics.list()
    },
    async append(records) {
      open()
      if (records.length === 0) return []
      const unknown = records.map(({ topic }) => toWire(topic)).filter(topic => topics.known(topic) === undefined)
      if (unknown.length === 0 && learning === 0) return await producer.append(records.map(place))
      // Records are copied now because they are sent later: they wait behind earlier appends, so that the order of
      // calls holds.
      const copies = records.map(record => ({ ...record, headers: { ...record.headers }, value: record.value.slice() }))
      learning++
      const sent = learned
        .then(async () => {
          for (const topic of unknown) await partitionsOf(topic)
          return { positions: producer.append(copies.map(place)) }
        })
        .finally(() => {
          learning--
        })
      learned = sent.catch(() => {})
      return await (await sent).positions
    },
    async read(topic, partition, offset, max = defaultReadRecords) {
      const wire = await checked(topic, partition)
      if (offset < 0) {
        const { oldest, next } = await reader.offsets(wire, partition)
        throw busErrors.offsetOutOfRange(topic, partition, offset, oldest, next)
      }
      const found: BusRecord[] = []
      let bytes = 0
      for (let at = offset; found.length < max && bytes < maxReadBytes; ) {
        const { records, end } = await reader.fetch(wire, partition, at)
        for (const record of records) bytes += record.value.length
        found.push(...records)
        at = (records.at(-1)?.offset ?? at - 1) + 1
        if (records.length === 0 || at >= end) break
      }
      return found.length > max ? found.slice(0, max) : found
    },
    async offsets(topic, partition) {
      return await reader.offsets(await checked(topic, partition), partition)
    },
    async committed(group, topic, partition) {
      return await reader.committed(toWire(group), await checked(topic, partition), partition)
    },
    async subscribe(options, handler): Promise<Subscription> {
      open()
      checkGroup(options.group)
      for (const topic of options.topics) await partitionsOf(toWire(topic))
      const consumer = await KafkaConsumer.start(context, options, handler)
      consumers.add(consumer)
      const subscription = consumer.subscription()
      return {
        ...subscription,
        close: async () => {
          await subscription.close()
          consumers.delete(consumer)
        },
      }
    },
    close() {
      closing ??= (async () => {
        await Promise.all([...consumers].map(consumer => consumer.close()))
        await learned
        await producer.close()
        reader.close()
        await tail.close()
        await topics.close()
        await inTime(Promise.allSettled([control.disconnect(), polls.disconnect()]))
        client.destroy()
      })()
      return closing
    },
  }
  return bus
}

/** Waits for `ending`, at most 3 s: a broker may hang. */
async function inTime(ending: Promise<unknown>): Promise<void> {
  const late = new AbortController()
  await Promise.race([ending, sleep(disconnectMs, undefined, { signal: late.signal }).catch(() => {})])
  late.abort()
}
