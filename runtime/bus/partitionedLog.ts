/**
 * The contract of an embedded driver: partitioned logs that are read synchronously. `embeddedBus` makes a Bus from one.
 *
 * in   records with their partition, committed offsets      out  records from an offset on, and notice of growth
 * Invariant: records whose `append` resolved are visible to `read` before the growth listener is called.
 */
import type { Bus, BusRecord, NewRecord, Position, TopicConfig } from './bus'

/** A record to append whose partition has been chosen. */
export interface PlacedRecord extends NewRecord {
  readonly partition: number
}

export interface PartitionedLog {
  readonly kind: Bus['kind']
  readonly directory?: string
  topic(name: string): TopicConfig | undefined
  topics(): readonly TopicConfig[]
  /** Creates topics. The caller has checked the configs, and that none of the topics exists. */
  createTopics(configs: readonly TopicConfig[]): Promise<void>
  /**
   * Appends all records or none; resolves once they are durable. The caller has checked that the topics and partitions
   * exist, and the sizes.
   */
  append(records: readonly PlacedRecord[]): Promise<readonly Position[]>
  /**
   * Reads records from `offset` on: at most `max`, and none after the record (in an lmdb log: the chunk) with which
   * they reach `maxBytes`. Empty at the partition's end. @throws TroupeError bus.offset_out_of_range below the oldest
   * offset
   */
  read(topic: string, partition: number, offset: number, max: number, maxBytes: number): readonly BusRecord[]
  offsets(topic: string, partition: number): { readonly oldest: number; readonly next: number }
  committed(group: string, topic: string, partition: number): number | undefined
  /** Commits the group's offset; resolves once that is durable. */
  commit(group: string, position: Position): Promise<void>
  /**
   * Sets the listener that is called with each partition that has grown. If another process writes the log, the driver
   * polls for growth.
   */
  onGrowth(listener: (topic: string, partition: number) => void): void
  close(): Promise<void>
}
