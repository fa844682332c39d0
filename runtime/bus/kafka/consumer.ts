/**
 * A subscription on Kafka: starts delivery of each partition that the group assigns, and releases revoked ones.
 *
 * in   assignments of the group, fetched records      out  batches to the handler, onAssigned, onRevoked, onError
 * Invariants: a partition has one handler call at a time, and is released only after that call and onRevoked have
 * ended, unless the group has dropped this member. Its buffer is bounded (partitionBuffer.ts). A member whose last
 * answered heartbeat is older than `sessionTimeoutMs` delivers nothing: its partitions may belong to another member.
 */
import { asError, TroupeError } from '../../errors'
import { keyOf, type TopicPartition } from '../assignment'
import type { BatchHandler, BusRecord, Position, SubscribeOptions, Subscription } from '../bus'
import { busErrors } from '../busErrors'
import { PartitionDelivery } from '../partitionDelivery'
import type { KafkaClient } from './client'
import { rootOf } from './errors'
import { KafkaMember } from './member'
import { PartitionBuffer } from './partitionBuffer'
import type { KafkaReader } from './reader'
import type { Cursor, KafkaTail } from './tail'

const defaultMaxBatch = 512

export interface ConsumerContext {
  readonly client: KafkaClient
  readonly reader: KafkaReader
  readonly tail: KafkaTail
  /** Adds the prefix, which topic and group names have on the broker. */
  readonly toWire: (name: string) => string
  readonly fromWire: (name: string) => string
  /** Returns the number of partitions of a topic, given its name on the broker. */
  readonly partitionsOf: (topic: string) => Promise<number>
}

/** A partition that this member owns, or is releasing. */
interface OwnedPartition {
  /** Topic, by its name on the broker, and partition. */
  readonly at: TopicPartition
  /** True while the partition is being released; meanwhile the member still reports it to the group as held. */
  isReleasing: boolean
  delivery: PartitionDelivery | undefined
  cursor: Cursor | undefined
  readonly buffer: PartitionBuffer
  /** Resolves when the start of the partition's delivery has succeeded, failed, or been given up. */
  ready: Promise<void>
}

export class KafkaConsumer {
  private readonly held = new Map<string, OwnedPartition>()
  /** Partitions that are being released, each with a promise of its release. */
  private readonly releasing = new Map<string, Promise<void>>()
  /** Partitions that the caller paused, including those whose delivery has not started yet. */
  private readonly paused = new Set<string>()
  private readonly group: string
  private member!: KafkaMember
  private failed = false
  private closing: Promise<void> | undefined
  private settle: () => void = () => {}

  private constructor(
    private readonly context: ConsumerContext,
    private readonly options: SubscribeOptions,
    private readonly handler: BatchHandler,
  ) {
    this.group = context.toWire(options.group)
  }

  /**
   * Resolves when the group has settled with this member (no partition waits for a release), or the member has failed.
   */
  static async start(
    context: ConsumerContext,
    options: SubscribeOptions,
    handler: BatchHandler,
  ): Promise<KafkaConsumer> {
    const consumer = new KafkaConsumer(context, options, handler)
    const settled = new Promise<void>(resolve => {
      consumer.settle = resolve
    })
    consumer.member = new KafkaMember({
      client: context.client,
      group: consumer.group,
      topics: [...new Set(options.topics)].map(context.toWire),
      partitionsOf: context.partitionsOf,
      held: () => consumer.held.keys(),
      onAssigned: (partitions, isSettled) => void consumer.assigned(partitions, isSettled),
      onLost: () => void consumer.lost(),
      onError: error => consumer.fail(error),
    })
    await settled
    return consumer
  }

  subscription(): Subscription {
    const key = (topic: string, partition: number): string => keyOf(this.context.toWire(topic), partition)
    return {
      commit: position => this.commit(position),
      holds: (topic, partition) => {
        const held = this.held.get(key(topic, partition))
        return held !== undefined && !held.isReleasing && this.closing === undefined && this.member.isCurrent()
      },
      pause: (topic, partition) => {
        this.paused.add(key(topic, partition))
        this.held.get(key(topic, partition))?.delivery?.pause()
      },
      resume: (topic, partition) => {
        this.paused.delete(key(topic, partition))
        this.held.get(key(topic, partition))?.delivery?.resume()
      },
      close: () => this.close(),
    }
  }

  close(): Promise<void> {
    this.closing ??= (async () => {
      this.settle()
      await this.releaseAll()
      await this.member.close()
    })()
    return this.closing
  }

  /** Reports the error once, releases every partition and leaves the group. */
  private fail(error: TroupeError): void {
    if (this.failed || this.closing) return
    this.failed = true
    queueMicrotask(() => this.options.onError(error))
    void this.close()
  }

  private withCode(thrown: unknown, { topic, partition }: TopicPartition): TroupeError {
    if (thrown instanceof TroupeError) return thrown
    return busErrors.handlerFailed(this.context.fromWire(topic), partition, asError(thrown))
  }

  private async assigned(partitions: readonly TopicPartition[], settled: boolean): Promise<void> {
    const mine = new Map(partitions.map(at => [keyOf(at.topic, at.partition), at]))
    for (const [key, held] of this.held) {
      if (!mine.has(key) && !held.isReleasing) void this.releasePartition(key, held).then(() => this.member.rejoin())
    }
    for (const [key, at] of mine) if (!this.held.has(key)) this.own(key, at)
    // A partition that is assigned while it is being released is assigned again by the next rebalance.
    const ready = [...mine.keys()].map(key => this.held.get(key)?.ready)
    await Promise.all(ready)
    if (settled) this.settle()
  }

  private lost(): void {
    for (const [key, held] of this.held) void this.releasePartition(key, held)
    // A member that lost its partitions stops naming them as held: the claim would only delay their new owners.
    this.held.clear()
  }

  /** Releases a partition; resolves when its handler and onRevoked have ended. Until then it counts as held. */
  private releasePartition(key: string, held: OwnedPartition): Promise<void> {
    if (held.isReleasing) return this.releasing.get(key) ?? Promise.resolve()
    held.isReleasing = true
    held.cursor?.remove()
    const release = (async () => {
      await held.ready
      await held.delivery?.stop()
      try {
        if (held.delivery) await this.options.onRevoked?.(this.named(held.at))
      } catch (thrown) {
        this.fail(this.withCode(thrown, held.at))
      }
      held.buffer.clear()
      if (this.held.get(key) === held) this.held.delete(key)
    })().finally(() => {
      if (this.releasing.get(key) === release) this.releasing.delete(key)
    })
    this.releasing.set(key, release)
    return release
  }

  private async releaseAll(): Promise<void> {
    for (const [key, held] of this.held) void this.releasePartition(key, held)
    await Promise.all(this.releasing.values())
  }

  private own(key: string, at: TopicPartition): void {
    const before = this.releasing.get(key)
    const held: OwnedPartition = {
      at,
      isReleasing: false,
      delivery: undefined,
      cursor: undefined,
      buffer: new PartitionBuffer(),
      ready: Promise.resolve(),
    }
    this.held.set(key, held)
    held.ready = (async () => {
      await before // the handler of an earlier ownership may still be running
      if (this.closing || held.isReleasing) return
      try {
        await this.startDelivery(key, held)
      } catch (thrown) {
        this.fail(this.withCode(thrown, at))
      }
    })()
  }

  private async startDelivery(key: string, held: OwnedPartition): Promise<void> {
    const { topic, partition } = held.at
    const usual = await this.beginOf(held)
    const begin = (await this.options.onAssigned?.(this.named(held.at))) ?? usual
    const maxBatch = this.options.maxBatch ?? defaultMaxBatch
    const delivery = new PartitionDelivery({
      begin,
      lingerMs: this.options.lingerMs ?? 0,
      read: () => this.take(held, maxBatch),
      handler: this.handler,
      onFailure: thrown => this.fail(this.withCode(thrown, held.at)),
    })
    held.delivery = delivery
    if (this.paused.has(key)) delivery.pause()
    held.buffer.end = Math.max(held.buffer.end, begin)
    held.cursor = this.context.tail.add({
      topic,
      partition,
      begin,
      take: records => this.buffer(held, records),
      onFailure: thrown => this.fail(this.withCode(thrown, held.at)),
    })
    if (held.isReleasing) held.cursor.remove()
    else held.cursor.wake()
  }

  /**
   * Returns the committed offset, else the offset that `options.from` stands for; never one below the oldest record.
   */
  private async beginOf({ at: { topic, partition } }: OwnedPartition): Promise<number> {
    const [{ oldest, next }, committed] = await Promise.all([
      this.context.reader.offsets(topic, partition),
      this.context.reader.committed(this.group, topic, partition),
    ])
    if (committed !== undefined) return Math.max(committed, oldest)
    const begin = this.options.from === 'earliest' ? oldest : next
    if (this.options.from === 'latest') {
      // The begin offset is committed at once: a partition that moves before the first commit must not skip records
      // appended meanwhile.
      await this.commitAs(topic, partition, begin).catch(() => {}) // a failure is ignored: the next owner commits
    }
    return begin
  }

  private buffer(held: OwnedPartition, records: readonly BusRecord[]): boolean {
    const hasRoom = held.buffer.add(records)
    held.delivery?.wake()
    return hasRoom
  }

  private take(held: OwnedPartition, maxBatch: number): readonly BusRecord[] {
    if (!this.member.isCurrent()) {
      // Buffered records are delivered once the group confirms this member again; if the group has dropped it, never.
      if (!held.buffer.isEmpty && !held.isReleasing) setTimeout(() => held.delivery?.wake(), 50).unref()
      return []
    }
    const taken = held.buffer.take(maxBatch)
    if (held.buffer.isLow) held.cursor?.wake()
    return taken
  }

  private async commit({ topic, partition, offset }: Position): Promise<void> {
    const wire = this.context.toWire(topic)
    const held = this.held.get(keyOf(wire, partition))
    if (!held || this.closing) throw busErrors.notOwned(this.options.group, topic, partition)
    if (!Number.isInteger(offset) || offset < 0 || offset > held.buffer.end) {
      const { oldest, next } = await this.context.reader.offsets(wire, partition)
      held.buffer.end = Math.max(held.buffer.end, next)
      if (!Number.isInteger(offset) || offset < 0 || offset > next) {
        throw busErrors.offsetOutOfRange(topic, partition, offset, oldest, next)
      }
    }
    try {
      await this.commitAs(wire, partition, offset)
    } catch (thrown) {
      const { type } = rootOf((thrown as Error).cause)
      const isForeign = type === 'UNKNOWN_MEMBER_ID' || type === 'ILLEGAL_GENERATION'
      throw isForeign ? busErrors.notOwned(this.options.group, topic, partition) : thrown
    }
  }

  /**
   * Commits an offset. Retries transient faults, and refusals during a rebalance: a partition belongs to this member
   * until the member releases it.
   */
  private async commitAs(topic: string, partition: number, offset: number): Promise<void> {
    const { reader } = this.context
    await reader.retrying(`committing ${topic}/${partition}`, async () => {
      const coordinator = await reader.coordinatorOf(this.group)
      const { memberId, generation } = this.member.identity()
      try {
        await coordinator.offsetCommit({
          groupId: this.group,
          groupGenerationId: generation,
          memberId,
          topics: [{ topic, partitions: [{ partition, offset: String(offset) }] }],
        })
      } catch (thrown) {
        const isMoving =
          rootOf(thrown).type === 'REBALANCE_IN_PROGRESS' || generation !== this.member.identity().generation
        throw isMoving ? rebalancing(thrown) : thrown
      }
    })
  }

  private named({ topic, partition }: TopicPartition): TopicPartition {
    return { topic: this.context.fromWire(topic), partition }
  }
}

function rebalancing(cause: unknown): TroupeError {
  return new TroupeError('bus.group_dealing', {
    boundary: 'bus',
    retriable: true,
    message: 'the consumer group is rebalancing its partitions, and its coordinator accepts no commit meanwhile',
    hint: 'commit again later: a member that does not answer delays the rebalance until its session ends',
    cause,
  })
}
