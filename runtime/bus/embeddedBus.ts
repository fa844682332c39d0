/**
 * Makes a Bus from an embedded log: checks arguments, chooses partitions by key, runs consumer groups.
 *
 * in   a PartitionedLog      out  a Bus
 * Invariant: a refused call has changed nothing; after `close` every other call of the Bus is refused with
 * `bus.closed`.
 */
import type { Bus, NewRecord, TopicConfig } from './bus'
import { checkGroup, checkRecord, checkTopicConfig } from './busChecks'
import { busErrors } from './busErrors'
import { ConsumerGroups } from './groups'
import type { PartitionedLog, PlacedRecord } from './partitionedLog'
import { partitionOf } from './partitioner'

const defaultReadRecords = 512
/**
 * Bytes at which one read ends, even with fewer than `max` records; its last record, or lmdb chunk, may exceed them.
 */
const maxReadBytes = 16 * 1024 * 1024

export function embeddedBus(log: PartitionedLog): Bus {
  const groups = new ConsumerGroups(log)
  let closing: Promise<void> | undefined
  /** Serialises createTopics: two concurrent calls must not both find the same topic missing. */
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
    checkRecord(record)
    const { topic, key, headers, value } = record
    if (record.partition !== undefined) check(topic, record.partition)
    return { topic, key, headers, value, partition: record.partition ?? partitionOf(key, partitions) }
  }
  const create = async (configs: readonly TopicConfig[]): Promise<void> => {
    open()
    const missing = new Map<string, TopicConfig>()
    for (const config of configs) {
      checkTopicConfig(config)
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
    ...(log.directory === undefined ? {} : { directory: log.directory }),
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
      checkGroup(options.group)
      return await groups.subscribe(options, handler)
    },
    close() {
      closing ??= groups.close().then(() => log.close())
      return closing
    },
  }
}
