/**
 * The writer of a log: group commit. A transaction takes up to 16 MiB, or one larger append; then callers are answered.
 *
 * in   appends, commits, new topics, trims (drops of expired records)       out  lmdb transactions, one after the other
 * Invariants: offsets are final only when the transaction that stores their records succeeds, so a failed one leaves no
 * gap. A transaction is conditional on this process's lease: a writer whose lease was taken over writes nothing. The
 * bytes of waiting appends are bounded: at most 256 MiB, or one larger append.
 */
import type { Effects } from '../../effects'
import { TroupeError } from '../../errors'
import type { BusRecord, Position, TopicConfig } from '../bus'
import { busErrors } from '../busErrors'
import type { PartitionedLog, PlacedRecord } from '../partitionedLog'
import { trimMost } from './allocate'
import { ChunkWriter, chunkTimestamp, type StampedRecord } from './chunk'
import { lmdbErrors, writeError } from './errors'
import { beat, heartbeatMs } from './holder'
import { LeasedStore, type Write } from './leasedStore'
import {
  boundsOf,
  chunksFrom,
  committedKey,
  getMeta,
  offsetOf,
  oldestKey,
  readRecords,
  recordKey,
  type Store,
  type StoredTopic,
  storedTopics,
  topicKey,
} from './store'
import { takeLease } from './writerLease'

interface Partition {
  readonly topic: string
  readonly partition: number
  readonly id: number
  oldest: number
  next: number
  /** Records of the transaction that is being built. */
  staged: StampedRecord[]
  /** True while expired chunks of the partition are being dropped. */
  trimming: boolean
}

interface Topic {
  readonly stored: StoredTopic
  readonly config: TopicConfig
  readonly partitions: readonly Partition[]
}

/** A piece of work that waits for a transaction: `stage` adds its writes, then `done` or `fail` is called. */
interface Work {
  readonly bytes: number
  stage(): void
  done(): void
  fail(error: TroupeError): void
}

export interface LmdbWriterOptions {
  readonly effects: Pick<Effects, 'now'>
  readonly writeTimeoutMs: number
  /** True if the lease may still name this process, which has no open writer here; it may then take the lease again. */
  readonly ownsLease: boolean
  /**
   * Called when the writer has closed. @param released false if the lease was not released, or the writer had failed
   */
  readonly onClosed: (released: boolean) => void
}

const maxWaitingBytes = 256 * 1024 * 1024
const maxTransactionBytes = 16 * 1024 * 1024
const trimEveryMs = 60_000

export class LmdbWriter implements PartitionedLog {
  readonly kind = 'lmdb'
  readonly directory: string
  private readonly byName = new Map<string, Topic>()
  private readonly commits = new Map<string, number>()
  private readonly chunks = new ChunkWriter()
  private readonly heartbeat: NodeJS.Timeout
  private readonly epoch: number
  private readonly table: LeasedStore
  private waiting: Work[] = []
  private waitingBytes = 0
  private writes: Write[] = []
  private dirty = new Set<Partition>()
  private running: Promise<void> | undefined
  private broken: TroupeError | undefined
  private trimmedAt: number
  private closing = false
  private listener: (topic: string, partition: number) => void = () => {}

  constructor(
    store: Store,
    private readonly options: LmdbWriterOptions,
  ) {
    this.directory = store.directory
    this.epoch = takeLease(store, options.ownsLease)
    this.table = new LeasedStore(store, this.epoch, options.writeTimeoutMs)
    for (const stored of storedTopics(store)) this.add(stored)
    beat(store.directory)
    this.heartbeat = setInterval(() => beat(store.directory), heartbeatMs).unref()
    this.trimmedAt = options.effects.now()
    this.trim()
  }

  topic(name: string): TopicConfig | undefined {
    return this.byName.get(name)?.config
  }

  topics(): readonly TopicConfig[] {
    return [...this.byName.values()].map(topic => topic.config)
  }

  async createTopics(configs: readonly TopicConfig[]): Promise<void> {
    let id = Math.max(0, ...[...this.byName.values()].map(topic => topic.stored.id))
    const added = configs.map(({ topic, partitions, retentionMs }) => ({ id: ++id, topic, partitions, retentionMs }))
    await this.write(0, () => {
      for (const stored of added) this.writes.push({ table: 'meta', key: topicKey(stored.topic), value: stored })
    })
    for (const stored of added) if (!this.byName.has(stored.topic)) this.add(stored)
  }

  async append(records: readonly PlacedRecord[]): Promise<readonly Position[]> {
    const timestamp = this.options.effects.now()
    if (timestamp - this.trimmedAt >= trimEveryMs) this.trim()
    let bytes = 0
    for (const record of records) bytes += record.value.length + 256
    let positions: Position[] = []
    await this.write(bytes, () => {
      positions = records.map(record => {
        const partition = this.byName.get(record.topic)!.partitions[record.partition]!
        this.dirty.add(partition)
        const offset = partition.next + partition.staged.push({ record, timestamp }) - 1
        return { topic: record.topic, partition: record.partition, offset }
      })
    })
    return positions
  }

  read(topic: string, partition: number, offset: number, max: number, maxBytes: number): readonly BusRecord[] {
    const { id, oldest, next } = this.partition(topic, partition)
    if (offset < oldest) throw busErrors.offsetOutOfRange(topic, partition, offset, oldest, next)
    if (offset >= next) return []
    return readRecords(this.store, id, topic, partition, offset, max, maxBytes)
  }

  offsets(topic: string, partition: number): { oldest: number; next: number } {
    const { oldest, next } = this.partition(topic, partition)
    return { oldest, next }
  }

  committed(group: string, topic: string, partition: number): number | undefined {
    const key = committedKey(group, topic, partition)
    let offset = this.commits.get(key)
    if (offset === undefined) {
      offset = getMeta(this.store, key) as number | undefined
      if (offset !== undefined) this.commits.set(key, offset)
    }
    return offset
  }

  async commit(group: string, { topic, partition, offset }: Position): Promise<void> {
    const key = committedKey(group, topic, partition)
    await this.write(key.length, () => this.writes.push({ table: 'meta', key, value: offset }))
    this.commits.set(key, offset)
  }

  onGrowth(listener: (topic: string, partition: number) => void): void {
    this.listener = listener
  }

  async close(): Promise<void> {
    this.closing = true
    while (this.running) await this.running
    clearInterval(this.heartbeat)
    const released = this.broken === undefined && (await this.table.release())
    // After a stall, lmdb's close would wait for the hanging write, so it is not awaited.
    if (this.broken?.code === 'bus.write_stalled') void this.table.close()
    else await this.table.close()
    this.options.onClosed(released)
  }

  private add(stored: StoredTopic): void {
    const partitions = Array.from({ length: stored.partitions }, (_, partition): Partition => {
      const id = stored.id * 65_536 + partition
      return { topic: stored.topic, partition, id, ...boundsOf(this.store, id), staged: [], trimming: false }
    })
    const { topic, retentionMs } = stored
    this.byName.set(topic, { stored, config: { topic, partitions: stored.partitions, retentionMs }, partitions })
  }

  private get store(): Store {
    return this.table.store
  }

  private partition(topic: string, partition: number): Partition {
    return this.byName.get(topic)!.partitions[partition]!
  }

  private write(bytes: number, stage: () => void): Promise<void> {
    return new Promise((done, fail) => {
      if (this.broken) return fail(this.broken)
      if (this.waiting.length > 0 && this.waitingBytes + bytes > maxWaitingBytes) {
        return fail(busErrors.overloaded(this.waitingBytes))
      }
      this.waiting.push({ bytes, stage, done, fail })
      this.waitingBytes += bytes
      this.running ??= this.run()
    })
  }

  /** Runs transactions until no work waits. Answered callers may add work before the next transaction. */
  private async run(): Promise<void> {
    await endOfTurn()
    while (this.waiting.length > 0) {
      const works = this.takeWork()
      const error = await this.transaction(works)
      const grown = [...this.dirty]
      this.dirty.clear()
      for (const partition of grown) {
        if (!error) partition.next += partition.staged.length
        partition.staged = []
      }
      for (const work of works) {
        if (error) work.fail(error)
        else work.done()
      }
      if (!error) for (const { topic, partition } of grown) this.listener(topic, partition)
      if (this.broken) for (const work of this.waiting.splice(0)) work.fail(this.broken)
      await endOfTurn()
    }
    this.running = undefined
  }

  private takeWork(): Work[] {
    let [bytes, count] = [0, 0]
    while (count < this.waiting.length && (count === 0 || bytes + this.waiting[count]!.bytes <= maxTransactionBytes)) {
      bytes += this.waiting[count++]!.bytes
    }
    this.waitingBytes -= bytes
    return this.waiting.splice(0, count)
  }

  /** Runs one transaction. Encodes records before it calls lmdb: lmdb commits the writes of a callback that throws. */
  private async transaction(works: readonly Work[]): Promise<TroupeError | undefined> {
    const { directory } = this.store
    try {
      this.writes = []
      this.chunks.reset()
      for (const work of works) work.stage()
      for (const partition of this.dirty) this.encode(partition)
      if (await this.table.commit(this.writes)) return undefined
      this.broken = lmdbErrors.fenced(directory)
      return this.broken
    } catch (thrown) {
      const error = thrown instanceof TroupeError ? thrown : writeError(directory, thrown)
      if (!error.retriable) this.broken = error
      return error
    }
  }

  private encode({ id, next, staged }: Partition): void {
    for (let from = 0; from < staged.length; ) {
      const first = next + from
      const { bytes, key, count } = this.chunks.encode(staged, from, count => recordKey(id, first + count - 1))
      from += count
      this.writes.push({ table: 'records', key, value: bytes })
    }
  }

  /** Starts to drop expired chunks of topics with a retention. */
  private trim(): void {
    const now = this.options.effects.now()
    this.trimmedAt = now
    for (const { config, partitions } of this.byName.values()) {
      if (config.retentionMs === null) continue
      for (const partition of partitions) void this.trimPartition(partition, now - config.retentionMs)
    }
  }

  /** Drops all expired chunks of a partition in several transactions. If one fails, the next trim tries again. */
  private async trimPartition(partition: Partition, before: number): Promise<void> {
    if (partition.trimming) return
    partition.trimming = true
    try {
      while ((await this.trimOnce(partition, before)) > 0);
    } catch {
      // The disk is full or failing, or the bus is closing: waiting appends report it.
    } finally {
      partition.trimming = false
    }
  }

  /** Drops expired chunks in one transaction; resolves with their number. */
  private async trimOnce(partition: Partition, before: number): Promise<number> {
    if (this.closing) return 0
    const keys: Buffer[] = []
    let bytes = 0
    for (const { key, value } of chunksFrom(this.store, partition.id, partition.oldest)) {
      if (keys.length === trimMost.chunks || bytes > trimMost.bytes || chunkTimestamp(value) >= before) break
      bytes += value.length
      keys.push(key)
    }
    const last = keys[keys.length - 1]
    if (!last) return 0
    const oldest = offsetOf(last) + 1
    await this.write(0, () => {
      for (const key of keys) this.writes.push({ table: 'records', key, value: undefined })
      this.writes.push({ table: 'meta', key: oldestKey(partition.id), value: oldest })
    })
    partition.oldest = oldest
    return keys.length
  }
}

/** Resolves after all promise callbacks of this turn of the event loop, so that their work shares a transaction. */
const endOfTurn = (): Promise<void> => new Promise(resolve => queueMicrotask(() => process.nextTick(resolve)))
