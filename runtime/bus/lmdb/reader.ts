/**
 * The reader of a log that another process writes: each call sees everything committed before the call.
 *
 * in   a store opened for reading     out  records; notice of new ones, found by polling every 20 ms
 * Invariant: the reader writes nothing to the log, and keeps no snapshot between calls.
 */
import type { BusRecord, Position, TopicConfig } from '../bus'
import { busErrors } from '../busErrors'
import type { PartitionedLog } from '../partitionedLog'
import { lmdbErrors } from './errors'
import {
  boundsOf,
  committedKey,
  getMeta,
  readRecords,
  type Store,
  type StoredTopic,
  storedTopics,
  topicKey,
} from './store'

/**
 * Milliseconds between two polls for growth. A poll costs one search in the tree for each partition of the topics that
 * were used so far.
 */
const pollMs = 20

export class LmdbReader implements PartitionedLog {
  readonly kind = 'lmdb'
  private readonly known = new Map<string, StoredTopic>()
  private readonly seen = new Map<number, number>()
  private poll: NodeJS.Timeout | undefined

  constructor(private readonly store: Store) {}

  topic(name: string): TopicConfig | undefined {
    const stored = this.find(name)
    return stored && configOf(stored)
  }

  topics(): readonly TopicConfig[] {
    this.store.root.resetReadTxn()
    return storedTopics(this.store).map(configOf)
  }

  async createTopics(): Promise<void> {
    throw lmdbErrors.readOnly(this.store.directory)
  }

  async append(): Promise<readonly Position[]> {
    throw lmdbErrors.readOnly(this.store.directory)
  }

  async commit(): Promise<void> {
    throw lmdbErrors.readOnly(this.store.directory)
  }

  read(topic: string, partition: number, offset: number, max: number, maxBytes: number): readonly BusRecord[] {
    const { oldest, next } = this.offsets(topic, partition)
    if (offset < oldest) throw busErrors.offsetOutOfRange(topic, partition, offset, oldest, next)
    if (offset >= next) return []
    return readRecords(this.store, this.partitionId(topic, partition), topic, partition, offset, max, maxBytes)
  }

  offsets(topic: string, partition: number): { oldest: number; next: number } {
    this.store.root.resetReadTxn()
    return boundsOf(this.store, this.partitionId(topic, partition))
  }

  committed(group: string, topic: string, partition: number): number | undefined {
    this.store.root.resetReadTxn()
    return getMeta(this.store, committedKey(group, topic, partition)) as number | undefined
  }

  onGrowth(listener: (topic: string, partition: number) => void): void {
    this.poll = setInterval(() => this.look(listener), pollMs)
  }

  async close(): Promise<void> {
    clearInterval(this.poll)
    await this.store.root.close()
  }

  private look(listener: (topic: string, partition: number) => void): void {
    this.store.root.resetReadTxn()
    for (const { topic, id, partitions } of this.known.values()) {
      for (let partition = 0; partition < partitions; partition++) {
        const partitionId = id * 65_536 + partition
        const { next } = boundsOf(this.store, partitionId)
        if (this.seen.get(partitionId) === next) continue
        this.seen.set(partitionId, next)
        listener(topic, partition)
      }
    }
  }

  private find(name: string): StoredTopic | undefined {
    const known = this.known.get(name)
    if (known) return known
    this.store.root.resetReadTxn()
    const stored = getMeta(this.store, topicKey(name)) as StoredTopic | undefined
    if (stored) this.known.set(name, stored)
    return stored
  }

  private partitionId(topic: string, partition: number): number {
    return this.find(topic)!.id * 65_536 + partition
  }
}

const configOf = ({ topic, partitions, retentionMs }: StoredTopic): TopicConfig => ({ topic, partitions, retentionMs })
