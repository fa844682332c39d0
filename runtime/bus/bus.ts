/**
 * The bus: topics of ordered, durable records, with Kafka's semantics whatever stands behind it.
 *
 * in   records to append          out  the same records, in order within a partition, as often as anyone reads them
 * Invariant: a record whose append resolved is there after a crash, at the offset that was returned; offsets of a
 * partition grow by one and never change. Delivery to a consumer is at least once.
 */
export interface TopicConfig {
  readonly topic: string
  readonly partitions: number
  /** ms; null keeps for ever. */
  readonly retentionMs: number | null
}

/** A record to append. Its partition follows from the key, unless it is given. */
export interface NewRecord {
  readonly topic: string
  readonly key: string
  readonly headers: Readonly<Record<string, string>>
  readonly value: Uint8Array
  readonly partition?: number
}

export interface BusRecord {
  readonly topic: string
  readonly partition: number
  readonly offset: number
  /** ms since 1970, when it was appended. */
  readonly timestamp: number
  readonly key: string
  readonly headers: Readonly<Record<string, string>>
  /** A copy that the receiver owns. */
  readonly value: Uint8Array
}

export interface Position {
  readonly topic: string
  readonly partition: number
  readonly offset: number
}

export interface SubscribeOptions {
  readonly topics: readonly string[]
  /** Members of one group share the partitions; every partition has one of them. */
  readonly group: string
  /** Where to begin in a partition for which the group has committed nothing. */
  readonly from: 'earliest' | 'latest'
  /** Most records handed over at once. Default 512. */
  readonly maxBatch?: number
  /** At least so long between two batches of a partition, ms: for those to whom fewer calls are worth more. Default 0. */
  readonly lingerMs?: number
  /** Called before the first record of a newly owned partition; may return the offset to begin at instead. */
  readonly onAssigned?: (partition: { topic: string; partition: number }) => Promise<number | undefined>
  /** Called when a partition goes to another member. */
  readonly onRevoked?: (partition: { topic: string; partition: number }) => Promise<void>
  /** A consumer that can go no further says so here, once, and stops. */
  readonly onError: (error: Error) => void
}

/** Records of one partition, in order. The next batch of that partition comes when this has resolved (back-pressure). */
export type BatchHandler = (records: readonly BusRecord[]) => Promise<void>

export interface Subscription {
  /** The group begins at `offset` next time: everything before it is done. */
  commit(position: Position): Promise<void>
  /** Whether a partition is surely this member's now: false as soon as the group may have given it to another. */
  holds(topic: string, partition: number): boolean
  pause(topic: string, partition: number): void
  resume(topic: string, partition: number): void
  /** Ends after the handler that runs. */
  close(): Promise<void>
}

export interface Bus {
  readonly kind: 'memory' | 'lmdb' | 'kafka'
  /** Creates what is missing. Throws `bus.topic_mismatch` when a topic exists with other partitions. */
  createTopics(configs: readonly TopicConfig[]): Promise<void>
  listTopics(): Promise<readonly TopicConfig[]>
  /** Appends all in the given order; resolves with their positions once they are durable. Atomic on memory and lmdb. */
  append(records: readonly NewRecord[]): Promise<readonly Position[]>
  /** Up to `max` records from `offset` on; empty at the end. Throws `bus.offset_out_of_range` before the oldest. */
  read(topic: string, partition: number, offset: number, max?: number): Promise<readonly BusRecord[]>
  /** Oldest offset and the one that the next record will get. */
  offsets(topic: string, partition: number): Promise<{ readonly oldest: number; readonly next: number }>
  committed(group: string, topic: string, partition: number): Promise<number | undefined>
  subscribe(options: SubscribeOptions, handler: BatchHandler): Promise<Subscription>
  close(): Promise<void>
}
