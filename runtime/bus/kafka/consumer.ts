/**
 * A subscription on Kafka: partitions that the group gives this member are set up, pumped to the handler, let go.
 *
 * in   assignments of the group, records of the tail      out  batches to the handler, onAssigned, onRevoked, onError
 * Invariants: a partition's handler calls follow one another; it is let go only after the one that runs and onRevoked have
 * ended; its buffer is bounded, and not fed above the high-water mark until it has sunk below the low one. A member that
 * was not heard within the session hands nothing out: its partitions may be another's.
 * The file is longer than 320 lines because set-up, buffer and release of a partition share one state and one order.
 */
import { asError, TroupeError } from '../../errors'
import { keyOf, type TopicPartition } from '../assignment'
import type { BatchHandler, BusRecord, Position, SubscribeOptions, Subscription } from '../bus'
import { busErrors } from '../busErrors'
import { PartitionDelivery } from '../partitionDelivery'
import type { KafkaClient } from './client'
import { rootOf } from './errors'
import { KafkaMember } from './member'
import type { KafkaReader } from './reader'
import type { Cursor, KafkaTail } from './tail'

const defaultMaxBatch = 512
/** Bounds what one handler call holds, whatever maxBatch says; one record may exceed it. */
const maxBatchBytes = 4 * 1024 * 1024
/** Of a partition's buffer; what one answer brings may exceed it. */
const highWaterBytes = 4 * 1024 * 1024
const highWaterRecords = 4096

export interface ConsumerContext {
  readonly client: KafkaClient
  readonly reader: KafkaReader
  readonly tail: KafkaTail
  /** Names on the wire carry the prefix. */
  readonly toWire: (name: string) => string
  readonly fromWire: (name: string) => string
  /** Of a topic on the wire. */
  readonly partitionsOf: (topic: string) => Promise<number>
}

interface Held {
  /** As on the wire. */
  readonly at: TopicPartition
  letGo: boolean
  delivery: PartitionDelivery | undefined
  cursor: Cursor | undefined
  buffer: BusRecord[]
  bytes: number
  /** The highest offset known to follow a record: what may be committed without asking. */
  end: number
  ready: Promise<void>
}

export class KafkaConsumer {
  private readonly held = new Map<string, Held>()
  private readonly going = new Map<string, Promise<void>>()
  /** Paused by the user before the partition was set up, too. */
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

  /** Resolves when the group has settled with this member in it, or when this member has failed. */
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
        return held !== undefined && !held.letGo && this.closing === undefined && this.member.isCurrent()
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
      await this.letAllGo()
      await this.member.close()
    })()
    return this.closing
  }

  /** Says so once, gives everything back, and leaves the group. */
  private fail(error: TroupeError): void {
    if (this.failed || this.closing) return
    this.failed = true
    queueMicrotask(() => this.options.onError(error))
    void this.close()
  }

  private coded(thrown: unknown, { topic, partition }: TopicPartition): TroupeError {
    if (thrown instanceof TroupeError) return thrown
    return busErrors.handlerFailed(this.context.fromWire(topic), partition, asError(thrown))
  }

  private async assigned(partitions: readonly TopicPartition[], settled: boolean): Promise<void> {
    const mine = new Map(partitions.map(at => [keyOf(at.topic, at.partition), at]))
    for (const [key, held] of this.held) {
      if (!mine.has(key) && !held.letGo) void this.letGo(key, held).then(() => this.member.rejoin())
    }
    for (const [key, at] of mine) if (!this.held.has(key)) this.setUp(key, at)
    // What is given back while it is being let go comes again with the next dealing.
    const ready = [...mine.keys()].map(key => this.held.get(key)?.ready)
    await Promise.all(ready)
    if (settled) this.settle()
  }

  private lost(): void {
    for (const [key, held] of this.held) void this.letGo(key, held)
    // They are not claimed: who claims what another holds already would only keep it from going on.
    this.held.clear()
  }

  /** Resolves when its handler and onRevoked have ended; until then it is held. */
  private letGo(key: string, held: Held): Promise<void> {
    if (held.letGo) return this.going.get(key) ?? Promise.resolve()
    held.letGo = true
    held.cursor?.remove()
    const going = (async () => {
      await held.ready
      await held.delivery?.stop()
      try {
        if (held.delivery) await this.options.onRevoked?.(this.named(held.at))
      } catch (thrown) {
        this.fail(this.coded(thrown, held.at))
      }
      held.buffer = []
      if (this.held.get(key) === held) this.held.delete(key)
    })().finally(() => {
      if (this.going.get(key) === going) this.going.delete(key)
    })
    this.going.set(key, going)
    return going
  }

  private async letAllGo(): Promise<void> {
    for (const [key, held] of this.held) void this.letGo(key, held)
    await Promise.all(this.going.values())
  }

  private setUp(key: string, at: TopicPartition): void {
    const before = this.going.get(key)
    const held: Held = {
      at,
      letGo: false,
      delivery: undefined,
      cursor: undefined,
      buffer: [],
      bytes: 0,
      end: 0,
      ready: Promise.resolve(),
    }
    this.held.set(key, held)
    held.ready = (async () => {
      await before // lost to the group and given back while its handler still ran
      if (this.closing || held.letGo) return
      try {
        await this.begin(key, held)
      } catch (thrown) {
        this.fail(this.coded(thrown, at))
      }
    })()
  }

  private async begin(key: string, held: Held): Promise<void> {
    const { topic, partition } = held.at
    const usual = await this.beginOf(held)
    const begin = (await this.options.onAssigned?.(this.named(held.at))) ?? usual
    const maxBatch = this.options.maxBatch ?? defaultMaxBatch
    const delivery = new PartitionDelivery({
      begin,
      lingerMs: this.options.lingerMs ?? 0,
      read: () => this.take(held, maxBatch),
      handler: this.handler,
      onFailure: thrown => this.fail(this.coded(thrown, held.at)),
    })
    held.delivery = delivery
    if (this.paused.has(key)) delivery.pause()
    held.end = Math.max(held.end, begin)
    held.cursor = this.context.tail.add({
      topic,
      partition,
      begin,
      take: records => this.buffer(held, records),
      onFailure: thrown => this.fail(this.coded(thrown, held.at)),
    })
    if (held.letGo) held.cursor.remove()
    else held.cursor.wake()
  }

  /** Where the group got to, else where it begins; never before the oldest record that is left. */
  private async beginOf({ at: { topic, partition } }: Held): Promise<number> {
    const [{ oldest, next }, committed] = await Promise.all([
      this.context.reader.offsets(topic, partition),
      this.context.reader.committed(this.group, topic, partition),
    ])
    if (committed !== undefined) return Math.max(committed, oldest)
    const begin = this.options.from === 'earliest' ? oldest : next
    if (this.options.from === 'latest') {
      // Said to the group at once: a partition that moves before anything is committed must not skip what came meanwhile.
      await this.commitAs(topic, partition, begin).catch(() => {}) // moving already: the next owner says it
    }
    return begin
  }

  private buffer(held: Held, records: readonly BusRecord[]): boolean {
    held.buffer.push(...records)
    for (const { value } of records) held.bytes += value.length
    held.end = Math.max(held.end, records.at(-1)!.offset + 1)
    held.delivery?.wake()
    return held.bytes < highWaterBytes && held.buffer.length < highWaterRecords
  }

  private take(held: Held, maxBatch: number): readonly BusRecord[] {
    if (!this.member.isCurrent()) {
      // Until the group says again that the partition is ours; what was buffered is handed out then, or never.
      if (held.buffer.length > 0 && !held.letGo) setTimeout(() => held.delivery?.wake(), 50).unref()
      return []
    }
    let bytes = 0
    let count = 0
    while (count < held.buffer.length && count < maxBatch && bytes < maxBatchBytes)
      bytes += held.buffer[count++]!.value.length
    const taken = held.buffer.splice(0, count)
    held.bytes -= bytes
    if (held.bytes <= highWaterBytes / 2 && held.buffer.length <= highWaterRecords / 2) held.cursor?.wake()
    return taken
  }

  private async commit({ topic, partition, offset }: Position): Promise<void> {
    const wire = this.context.toWire(topic)
    const held = this.held.get(keyOf(wire, partition))
    if (!held || this.closing) throw busErrors.notOwned(this.options.group, topic, partition)
    if (!Number.isInteger(offset) || offset < 0 || offset > held.end) {
      const { oldest, next } = await this.context.reader.offsets(wire, partition)
      held.end = Math.max(held.end, next)
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

  /** A group that is being dealt anew is asked again: the partition is held until this member lets it go. */
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
        throw isMoving ? stillDealing(thrown) : thrown
      }
    })
  }

  private named({ topic, partition }: TopicPartition): TopicPartition {
    return { topic: this.context.fromWire(topic), partition }
  }
}

function stillDealing(cause: unknown): TroupeError {
  return new TroupeError('bus.group_dealing', {
    boundary: 'bus',
    retriable: true,
    message: 'the group deals its partitions anew, and took no commit meanwhile',
    hint: 'a member that does not answer holds it up until its session ends',
    cause,
  })
}
