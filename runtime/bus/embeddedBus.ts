/**
 * A Bus over a log of this process: checks what is asked, places records by key, and leaves the rest to the log.
 *
 * Invariant: a call that is refused has changed nothing; after `close` every call is refused with `bus.closed`.
 */
import type { Bus, NewRecord, TopicConfig } from './bus'
import { busErrors, maxRecordBytes } from './busErrors'
import { ConsumerGroups } from './groups'
import type { Log, PlacedRecord } from './log'
import { partitionOf } from './partitioner'

const defaultReadRecords = 512
/** Bounds what one read returns, whatever `max` says; one record may exceed it. */
const maxReadBytes = 16 * 1024 * 1024
const maxPartitions = 65_536
const maxHeaders = 255

export function embeddedBus(log: Log): Bus {
  const groups = new ConsumerGroups(log)
  let closing: Promise<void> | undefined
  /** One createTopics at a time: two that ask for the same topic must not both find it missing. */
  let creating: Promise<void> = Promise.resolve()

  const open = (): void => {
    if (closing) throw busErrors.closed()
  }
  const topicOf = (name: string): TopicConfig => {
    const topic = log.topic(name)
    if (!topic) throw busErrors.topicUnknown(name)
    return topic
  }
  const check = (name: string, partition: number): void => {
    const { partitions } = topicOf(name)
    if (!Number.isInteger(partition) || partition < 0 || partition >= partitions) {
      throw busErrors.partitionUnknown(name, partition, partitions)
    }
  }
  const place = (record: NewRecord): PlacedRecord => {
    const { partitions } = topicOf(record.topic)
    checkSize(record)
    const { topic, key, headers, value } = record
    if (record.partition !== undefined) check(topic, record.partition)
    return { topic, key, headers, value, partition: record.partition ?? partitionOf(key, partitions) }
  }
  const create = async (configs: readonly TopicConfig[]): Promise<void> => {
    open()
    const missing = new Map<string, TopicConfig>()
    for (const config of configs) {
      checkConfig(config)
      const has = log.topic(config.topic) ?? missing.get(config.topic)
      if (!has) missing.set(config.topic, config)
      else if (has.partitions !== config.partitions) {
        throw busErrors.topicMismatch(config.topic, has.partitions, config.partitions)
      }
    }
    if (missing.size > 0) await log.createTopics([...missing.values()])
  }

  return {
    kind: log.kind,
    createTopics(configs) {
      const created = creating.then(() => create(configs))
      creating = created.catch(() => {})
      return created
    },
    async listTopics() {
      open()
      return log.topics()
    },
    async append(records) {
      open()
      if (records.length === 0) return []
      return await log.append(records.map(place))
    },
    async read(topic, partition, offset, max = defaultReadRecords) {
      open()
      check(topic, partition)
      return log.read(topic, partition, offset, max, maxReadBytes)
    },
    async offsets(topic, partition) {
      open()
      check(topic, partition)
      return log.offsets(topic, partition)
    },
    async committed(group, topic, partition) {
      open()
      check(topic, partition)
      return log.committed(group, topic, partition)
    },
    async subscribe(options, handler) {
      open()
      if (options.group.length < 1 || options.group.length > 249) throw busErrors.groupInvalid(options.group)
      return await groups.subscribe(options, handler)
    },
    close() {
      closing ??= groups.close().then(() => log.close())
      return closing
    },
  }
}

function checkSize(record: NewRecord): void {
  let characters = record.key.length
  let headers = 0
  for (const name in record.headers) {
    characters += name.length + record.headers[name]!.length
    headers++
  }
  if (headers > maxHeaders) {
    throw busErrors.recordInvalid(record.topic, `${headers} headers; at most ${maxHeaders} are taken`)
  }
  // A UTF-16 unit is at most three bytes of UTF-8: only a record near the limit is measured.
  if (record.value.length + 3 * characters <= maxRecordBytes) return
  let bytes = record.value.length + Buffer.byteLength(record.key)
  for (const [name, value] of Object.entries(record.headers))
    bytes += Buffer.byteLength(name) + Buffer.byteLength(value)
  if (bytes > maxRecordBytes) throw busErrors.recordTooLarge(record.topic, bytes)
}

function checkConfig({ topic, partitions, retentionMs }: TopicConfig): void {
  if (!/^[A-Za-z0-9._-]{1,249}$/.test(topic)) {
    throw busErrors.topicInvalid(topic, 'a name has 1 to 249 letters, digits, dots, dashes or underscores')
  }
  if (!Number.isInteger(partitions) || partitions < 1 || partitions > maxPartitions) {
    throw busErrors.topicInvalid(topic, `${partitions} partitions; 1 to ${maxPartitions} are possible`)
  }
  if (retentionMs !== null && !(retentionMs >= 0)) {
    throw busErrors.topicInvalid(topic, `a retention of ${retentionMs} ms`)
  }
}
