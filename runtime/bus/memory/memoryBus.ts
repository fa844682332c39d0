/**
 * The bus in memory: for tests, and for runs that need not survive the process.
 *
 * in   records
 * out  a Bus with the semantics of the durable drivers, except that records last only until the bus is closed
 * Invariant: records are copied when they are appended and again when they are read, so that a reader shares no bytes
 * with the log. Consumers of one process that read the same batch share it. The bus keeps every record that retention
 * does not drop, so its size grows with the appends.
 */
import { type Effects, systemEffects } from '../../effects'
import type { Bus, BusRecord, Position, TopicConfig } from '../bus'
import { busErrors } from '../busErrors'
import { embeddedBus } from '../embeddedBus'
import type { PartitionedLog, PlacedRecord } from '../partitionedLog'

interface Partition {
  oldest: number
  readonly records: BusRecord[]
}

interface Topic {
  readonly config: TopicConfig
  readonly partitions: readonly Partition[]
}

/**
 * Number of expired records that are dropped together from a partition of a topic with a retention; fewer are not
 * dropped.
 */
const trimAtOnce = 1024

export interface MemoryBusOptions {
  /** Clock for timestamps and retention. Default: the system's. */
  readonly effects?: Pick<Effects, 'now'>
}

export function openMemoryBus(options: MemoryBusOptions = {}): Bus {
  return embeddedBus(new MemoryLog(options.effects ?? systemEffects))
}

class MemoryLog implements PartitionedLog {
  readonly kind = 'memory'
  private readonly byName = new Map<string, Topic>()
  private readonly commits = new Map<string, number>()
  private listener: (topic: string, partition: number) => void = () => {}

  constructor(private readonly effects: Pick<Effects, 'now'>) {}

  topic(name: string): TopicConfig | undefined {
    return this.byName.get(name)?.config
  }

  topics(): readonly TopicConfig[] {
    return [...this.byName.values()].map(topic => topic.config)
  }

  async createTopics(configs: readonly TopicConfig[]): Promise<void> {
    for (const config of configs) {
      const partitions = Array.from({ length: config.partitions }, () => ({ oldest: 0, records: [] }))
      this.byName.set(config.topic, { config, partitions })
    }
  }

  async append(records: readonly PlacedRecord[]): Promise<readonly Position[]> {
    const timestamp = this.effects.now()
    const positions = records.map(({ topic, partition, key, headers, value }) => {
      const { config, partitions } = this.byName.get(topic)!
      const log = partitions[partition]!
      const offset = log.oldest + log.records.length
      log.records.push({
        topic,
        partition,
        offset,
        timestamp,
        key,
        headers: { ...headers },
        value: new Uint8Array(value),
      })
      if (config.retentionMs !== null) trim(log, timestamp - config.retentionMs)
      return { topic, partition, offset }
    })
    for (const { topic, partition } of positions) this.listener(topic, partition)
    return positions
  }

  read(topic: string, partition: number, offset: number, max: number, maxBytes: number): readonly BusRecord[] {
    const { oldest, records } = this.partition(topic, partition)
    const next = oldest + records.length
    if (offset < oldest) throw busErrors.offsetOutOfRange(topic, partition, offset, oldest, next)
    const found: BusRecord[] = []
    let bytes = 0
    for (let i = offset - oldest; i < records.length && found.length < max && bytes < maxBytes; i++) {
      const record = records[i]!
      bytes += record.value.length
      found.push({ ...record, headers: { ...record.headers }, value: new Uint8Array(record.value) })
    }
    return found
  }

  offsets(topic: string, partition: number): { oldest: number; next: number } {
    const { oldest, records } = this.partition(topic, partition)
    return { oldest, next: oldest + records.length }
  }

  committed(group: string, topic: string, partition: number): number | undefined {
    return this.commits.get(JSON.stringify([group, topic, partition]))
  }

  async commit(group: string, { topic, partition, offset }: Position): Promise<void> {
    this.commits.set(JSON.stringify([group, topic, partition]), offset)
  }

  onGrowth(listener: (topic: string, partition: number) => void): void {
    this.listener = listener
  }

  async close(): Promise<void> {
    this.byName.clear()
  }

  private partition(topic: string, partition: number): Partition {
    return this.byName.get(topic)!.partitions[partition]!
  }
}

function trim(log: Partition, before: number): void {
  const last = log.records[trimAtOnce - 1]
  if (!last || last.timestamp >= before) return
  log.records.splice(0, trimAtOnce)
  log.oldest += trimAtOnce
}
