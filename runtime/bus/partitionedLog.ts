/**
 * What an embedded driver is: partitioned logs that are read synchronously. `embeddedBus` makes a Bus of one.
 *
 * in   records with their partition, committed offsets      out  records from an offset on, and who grew
 * Invariant: what `append` resolved is visible to `read` before the growth listener hears of it.
 */
import type { Bus, BusRecord, NewRecord, Position, TopicConfig } from './bus'

/** A record whose partition is decided. */
export interface PlacedRecord extends NewRecord {
  readonly partition: number
}

export interface PartitionedLog {
  readonly kind: Bus['kind']
  topic(name: string): TopicConfig | undefined
  topics(): readonly TopicConfig[]
  /** Configs are valid, and none of them exists. */
  createTopics(configs: readonly TopicConfig[]): Promise<void>
  /** Topics and partitions exist and sizes are within bounds. All or nothing; resolves once durable. */
  append(records: readonly PlacedRecord[]): Promise<readonly Position[]>
  /** At most `max` records, fewer when they exceed `maxBytes`, at least one where there is one. */
  read(topic: string, partition: number, offset: number, max: number, maxBytes: number): readonly BusRecord[]
  offsets(topic: string, partition: number): { readonly oldest: number; readonly next: number }
  committed(group: string, topic: string, partition: number): number | undefined
  /** Resolves once durable. */
  commit(group: string, position: Position): Promise<void>
  /** One listener, called after each growth with the partition. A log that others write calls it by polling. */
  onGrowth(listener: (topic: string, partition: number) => void): void
  close(): Promise<void>
}
