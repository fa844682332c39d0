/**
 * The bus: topics of ordered, durable records, with Kafka's semantics on every driver.
 *
 * in   records to append          out  the same records, in order within a partition, as often as they are read
 * Invariant: a record whose append resolved survives a crash (except on the memory driver), at the offset that was
 * returned. The offset of a record never changes, and later records of its partition have larger offsets. Delivery to a
 * consumer is at least once.
 */

/** Name, partition count and retention of a topic: as a caller wants them, or as the bus reports them. */
export interface TopicConfig {
  readonly topic: string
  readonly partitions: number
  /** Milliseconds for which records are kept; null keeps them for ever. */
  readonly retentionMs: number | null
}

/** A record to append. Without `partition`, the key determines its partition. */
export interface NewRecord {
  readonly topic: string
  readonly key: string
  readonly headers: Readonly<Record<string, string>>
  readonly value: Uint8Array
  readonly partition?: number
}

/** A record as the bus delivers it. */
export interface BusRecord {
  readonly topic: string
  readonly partition: number
  readonly offset: number
  /** Time at which the record was appended, ms since 1970. */
  readonly timestamp: number
  readonly key: string
  readonly headers: Readonly<Record<string, string>>
  /**
   * The record's bytes. Later appends and reads do not change them. Consumers of one process may share them, so no
   * consumer may write to them.
   */
  readonly value: Uint8Array
}

/** Position of a record in the log. */
export interface Position {
  readonly topic: string
  readonly partition: number
  readonly offset: number
}

export interface SubscribeOptions {
  readonly topics: readonly string[]
  /** Name of the consumer group. Its members share the partitions; each partition belongs to one member. */
  readonly group: string
  /**
   * Beginning of delivery in a partition for which the group has no committed offset. earliest: at the oldest record.
   * latest: at the next new one.
   */
  readonly from: 'earliest' | 'latest'
  /** Upper bound on the records of a batch. Default 512. */
  readonly maxBatch?: number
  /**
   * Minimum time from the end of a handler call to the next batch of the same partition, ms, for a consumer that
   * prefers fewer, larger batches. Default 0.
   */
  readonly lingerMs?: number
  /**
   * Called before the first record of a newly owned partition. The offset that it returns replaces the one at which
   * delivery would begin; undefined keeps that one.
   */
  readonly onAssigned?: (partition: { topic: string; partition: number }) => Promise<number | undefined>
  /**
   * Called when this member loses a partition: because another member gets it, the group has dropped this member, or
   * the subscription is closed or has failed.
   */
  readonly onRevoked?: (partition: { topic: string; partition: number }) => Promise<void>
  /** Called once, when the consumer fails and stops. */
  readonly onError: (error: Error) => void
}

/**
 * Handles records of one partition, in order. The next batch of that partition follows once the returned promise has
 * resolved (backpressure).
 */
export type BatchHandler = (records: readonly BusRecord[]) => Promise<void>

export interface Subscription {
  /** Commits an offset for the group: every record below it is done, and the partition's next owner begins at it. */
  commit(position: Position): Promise<void>
  /** True while the partition certainly belongs to this member; false as soon as the group may have reassigned it. */
  holds(topic: string, partition: number): boolean
  pause(topic: string, partition: number): void
  resume(topic: string, partition: number): void
  /**
   * Leaves the group. Resolves once the running handler calls of this subscription and their `onRevoked` have ended.
   */
  close(): Promise<void>
}

export interface Bus {
  readonly kind: 'memory' | 'lmdb' | 'kafka'
  /** Directory of the log on this machine; absent if appends take no disk space here. */
  readonly directory?: string
  /**
   * Creates missing topics. @throws TroupeError bus.topic_mismatch when an existing topic has another number of
   * partitions or, on Kafka, settings that would lose records
   */
  createTopics(configs: readonly TopicConfig[]): Promise<void>
  listTopics(): Promise<readonly TopicConfig[]>
  /**
   * Appends records in the given order. Resolves with their positions once they are durable. Atomic on memory and lmdb.
   */
  append(records: readonly NewRecord[]): Promise<readonly Position[]>
  /**
   * Reads records from `offset` on: at most `max` (default 512), and about 16 MiB. Empty at the partition's end.
   * @throws TroupeError bus.offset_out_of_range below the oldest offset
   */
  read(topic: string, partition: number, offset: number, max?: number): Promise<readonly BusRecord[]>
  /** Returns the partition's oldest offset, and the offset of its next record. */
  offsets(topic: string, partition: number): Promise<{ readonly oldest: number; readonly next: number }>
  /** Returns the group's committed offset; undefined when it has committed none. */
  committed(group: string, topic: string, partition: number): Promise<number | undefined>
  subscribe(options: SubscribeOptions, handler: BatchHandler): Promise<Subscription>
  close(): Promise<void>
}
