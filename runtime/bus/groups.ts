/**
 * Consumer groups over an embedded log: members share partitions; partitions move when members join or leave.
 *
 * in   subscribe, commit, pause, resume, close; notice that a partition has new records
 * out  batches to handlers, onAssigned, onRevoked, onError; committed offsets
 * Invariants: in a group a partition has at most one owner, and moves only after its owner's running handler and
 * onRevoked have ended. A new owner begins at the offset that its onAssigned returns, else at the committed offset,
 * else where the group began in this process. A rebalance waits for the handlers of the partitions that move, so a
 * handler must not await a subscribe or a close of its own group.
 */
import { asError, TroupeError } from '../errors'
import { assignPartitions, keyOf, type TopicPartition } from './assignment'
import type { BatchHandler, Position, SubscribeOptions, Subscription } from './bus'
import { busErrors } from './busErrors'
import { PartitionDelivery } from './partitionDelivery'
import type { PartitionedLog } from './partitionedLog'
import { SharedReads } from './sharedReads'

const defaultMaxBatch = 512
/**
 * Bytes at which a batch ends, even with fewer than maxBatch records; its last record, or lmdb chunk, may exceed them.
 */
const maxBatchBytes = 4 * 1024 * 1024

interface Member {
  readonly id: number
  readonly topics: readonly string[]
  readonly options: SubscribeOptions
  readonly handler: BatchHandler
  failed: boolean
}

interface Owned {
  readonly at: TopicPartition
  readonly member: Member
  /** Delivery of the partition's records; undefined until onAssigned has resolved. */
  delivery: PartitionDelivery | undefined
}

let memberIds = 0

class Group {
  private readonly members = new Map<number, Member>()
  private readonly owned = new Map<string, Owned>()
  /**
   * Offsets at which the group began in partitions without a committed offset, so that a move to another member skips
   * no record.
   */
  private readonly begins = new Map<string, number>()
  private rebalanced: Promise<void> = Promise.resolve()

  constructor(
    private readonly name: string,
    private readonly log: PartitionedLog,
    private readonly reads: SharedReads,
  ) {}

  wake(key: string): void {
    this.owned.get(key)?.delivery?.wake()
  }

  async join(options: SubscribeOptions, handler: BatchHandler): Promise<Subscription> {
    const topics = [...new Set(options.topics)]
    const member: Member = { id: memberIds++, topics, options, handler, failed: false }
    // A group without members forgets these offsets: its next member begins where its own option `from` says, in
    // partitions without a committed offset.
    if (this.members.size === 0) this.begins.clear()
    this.members.set(member.id, member)
    await this.rebalance()
    const deliveryOf = (topic: string, partition: number): PartitionDelivery | undefined => {
      const owned = this.owned.get(keyOf(topic, partition))
      return owned?.member === member ? owned.delivery : undefined
    }
    return {
      commit: position => this.commit(member, position),
      holds: (topic, partition) => this.owned.get(keyOf(topic, partition))?.member === member,
      pause: (topic, partition) => deliveryOf(topic, partition)?.pause(),
      resume: (topic, partition) => deliveryOf(topic, partition)?.resume(),
      close: () => this.leave(member),
    }
  }

  async closeAll(): Promise<void> {
    await Promise.all([...this.members.values()].map(member => this.leave(member)))
    await this.rebalanced
  }

  private leave(member: Member): Promise<void> {
    this.members.delete(member.id)
    return this.rebalance()
  }

  private fail(member: Member, error: TroupeError): void {
    if (member.failed) return
    member.failed = true
    void this.leave(member)
    // Called in a microtask, so that an onError that throws is an uncaught exception and does not break the rebalance.
    queueMicrotask(() => member.options.onError(error))
  }

  private async commit(member: Member, position: Position): Promise<void> {
    const { topic, partition, offset } = position
    if (this.owned.get(keyOf(topic, partition))?.member !== member) {
      throw busErrors.notOwned(this.name, topic, partition)
    }
    const { oldest, next } = this.log.offsets(topic, partition)
    if (!Number.isInteger(offset) || offset < 0 || offset > next) {
      throw busErrors.offsetOutOfRange(topic, partition, offset, oldest, next)
    }
    await this.log.commit(this.name, position)
  }

  /** Rebalances the group. Rebalances run one after the other; each uses the members present at its start. */
  private rebalance(): Promise<void> {
    this.rebalanced = this.rebalanced.then(async () => {
      const current = new Map([...this.owned].map(([key, owned]) => [key, owned.member.id]))
      const target = assignPartitions([...this.members.values()], topic => this.log.topic(topic)!.partitions, current)
      const keys = new Set([...this.owned.keys(), ...target.keys()])
      await Promise.all([...keys].map(key => this.move(key, target.get(key))))
    })
    return this.rebalanced
  }

  private async move(key: string, target: { owner: number; at: TopicPartition } | undefined): Promise<void> {
    const owned = this.owned.get(key)
    if (owned?.member.id === target?.owner) return
    if (owned) {
      await owned.delivery?.stop()
      try {
        await owned.member.options.onRevoked?.(owned.at)
      } catch (thrown) {
        this.fail(owned.member, this.withCode(thrown, owned.at))
      }
      this.owned.delete(key)
    }
    const member = target && this.members.get(target.owner)
    if (target && member) await this.assign(key, target.at, member)
  }

  private async assign(key: string, at: TopicPartition, member: Member): Promise<void> {
    const owned: Owned = { at, member, delivery: undefined }
    this.owned.set(key, owned)
    try {
      const usual = this.beginOf(key, at, member)
      const begin = (await member.options.onAssigned?.(at)) ?? usual
      const { oldest, next } = this.log.offsets(at.topic, at.partition)
      if (begin > next) throw busErrors.offsetOutOfRange(at.topic, at.partition, begin, oldest, next)
      const maxBatch = member.options.maxBatch ?? defaultMaxBatch
      owned.delivery = new PartitionDelivery({
        begin,
        lingerMs: member.options.lingerMs ?? 0,
        read: offset => this.reads.read(at.topic, at.partition, offset, maxBatch, maxBatchBytes),
        handler: member.handler,
        onFailure: thrown => this.fail(member, this.withCode(thrown, at)),
      })
      owned.delivery.wake()
    } catch (thrown) {
      this.fail(member, this.withCode(thrown, at))
    }
  }

  private beginOf(key: string, { topic, partition }: TopicPartition, member: Member): number {
    const { oldest, next } = this.log.offsets(topic, partition)
    const committed = this.log.committed(this.name, topic, partition)
    // Retention may have dropped records since the commit; delivery then begins at the oldest record left.
    if (committed !== undefined) return Math.max(committed, oldest)
    const began = this.begins.get(key) ?? (member.options.from === 'earliest' ? oldest : next)
    this.begins.set(key, began)
    return Math.max(began, oldest)
  }

  private withCode(thrown: unknown, at: TopicPartition): TroupeError {
    return thrown instanceof TroupeError ? thrown : busErrors.handlerFailed(at.topic, at.partition, asError(thrown))
  }
}

export class ConsumerGroups {
  private readonly groups = new Map<string, Group>()
  private readonly grown = new Set<string>()

  private listening = false

  private readonly reads: SharedReads

  constructor(private readonly log: PartitionedLog) {
    this.reads = new SharedReads(log)
  }

  async subscribe(options: SubscribeOptions, handler: BatchHandler): Promise<Subscription> {
    for (const topic of options.topics) if (!this.log.topic(topic)) throw busErrors.topicUnknown(topic)
    if (!this.listening) this.log.onGrowth((topic, partition) => this.wake(keyOf(topic, partition)))
    this.listening = true
    let group = this.groups.get(options.group)
    if (!group) {
      group = new Group(options.group, this.log, this.reads)
      this.groups.set(options.group, group)
    }
    return await group.join(options, handler)
  }

  async close(): Promise<void> {
    await Promise.all([...this.groups.values()].map(group => group.closeAll()))
    this.groups.clear()
  }

  /**
   * Wakes a partition's delivery in the next turn of the event loop, once for all appends of this turn, so that
   * handlers do not starve I/O.
   */
  private wake(key: string): void {
    if (this.grown.size === 0) setImmediate(() => this.flush())
    this.grown.add(key)
  }

  private flush(): void {
    const keys = [...this.grown]
    this.grown.clear()
    for (const group of this.groups.values()) for (const key of keys) group.wake(key)
  }
}
