/**
 * Appends to Kafka in batches: records that arrive while a batch of their partition is in flight form the next batch.
 *
 * in   placed records      out  their positions, once all in-sync replicas have them
 * Invariants: a partition has one batch in flight, so that its records keep the order of the calls; only records of
 * other processes can come between the records of one call. A batch without an answer is sent again under the same
 * sequence number. If the batch is given up, its calls fail and the producer is replaced: kafkajs would use that number
 * again, and the broker would drop the next batch.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Producer, RecordMetadata } from 'kafkajs'
import { systemEffects } from '../../effects'
import type { Position } from '../bus'
import { busErrors } from '../busErrors'
import type { PlacedRecord } from '../partitionedLog'
import type { KafkaClient } from './client'
import { kafkaError, passesByItself } from './errors'
import {
  type Batch,
  type Call,
  type Item,
  messageOf,
  namesOf,
  type Queue,
  requestsOf,
  sizeOf,
  takeBatch,
  unanswered,
} from './produceBatch'
import type { KafkaCluster } from './protocol'

/**
 * Bytes of records that wait or are in flight above which `append` is refused; the last accepted call may exceed them.
 */
const maxWaitingBytes = 64 * 1024 * 1024
const closeDeadlineMs = 15_000
/** Milliseconds that a partition's leader waits for its followers before it fails the request. */
const ackTimeoutMs = 10_000
/** Milliseconds after which a request counts as slow: a broker may be gone, so the leaders are looked up again. */
const slowMs = 1000
const maxPauseMs = 1000

type Connecting = () => Promise<Producer>

export class KafkaProducer {
  private readonly queues = new Map<string, Queue>()
  private producer: Connecting | undefined
  private waitingBytes = 0
  private timer: NodeJS.Timeout | undefined
  private readonly sending = new Set<Promise<void>>()

  constructor(
    private readonly client: KafkaClient,
    /** Metadata source for the leader of each partition. */
    private readonly cluster: KafkaCluster,
    private readonly nameOf: (topicOnWire: string) => string,
  ) {}

  /**
   * Appends records, whose topics are named as on the broker.
   * @throws TroupeError bus.overloaded when too many bytes wait already; bus.unreachable, bus.not_enough_replicas,
   * bus.append_unanswered and others when a batch is given up
   */
  append(records: readonly PlacedRecord[]): Promise<readonly Position[]> {
    if (this.waitingBytes > maxWaitingBytes) throw busErrors.overloaded(this.waitingBytes)
    return new Promise((resolve, reject) => {
      const call: Call = { positions: new Array(records.length), open: records.length, resolve, reject }
      for (const [index, record] of records.entries()) {
        const item: Item = { call, index, message: messageOf(record), bytes: sizeOf(record) }
        this.waitingBytes += item.bytes
        this.queueOf(record.topic, record.partition).waiting.push(item)
      }
      this.schedule()
    })
  }

  /** Sends the waiting records, then closes. Records that still wait to be sent after 15 s fail with `bus.closed`. */
  async close(): Promise<void> {
    const late = new AbortController()
    await Promise.race([this.drained(), sleep(closeDeadlineMs, undefined, { signal: late.signal }).catch(() => {})])
    late.abort()
    clearTimeout(this.timer)
    for (const { waiting } of this.queues.values()) for (const { call } of waiting) call.reject(busErrors.closed())
    const { producer } = this
    this.producer = undefined
    if (!producer) return
    if (this.sending.size === 0) await disconnect(producer)
    else void disconnect(producer) // the call is not awaited: disconnecting waits for an answer that may never come
  }

  private async drained(): Promise<void> {
    while (this.sending.size > 0 || [...this.queues.values()].some(queue => queue.waiting.length > 0)) {
      this.flush(true)
      await Promise.race(this.sending)
    }
  }

  private queueOf(topic: string, partition: number): Queue {
    const key = `${topic}/${partition}`
    let queue = this.queues.get(key)
    if (!queue) {
      queue = { topic, partition, waiting: [], busy: false, sentAt: Number.NEGATIVE_INFINITY }
      this.queues.set(key, queue)
    }
    return queue
  }

  /** Schedules the next flush: at once for a partition whose linger time has passed, else when it passes. */
  private schedule(): void {
    if (this.timer) return
    this.timer = setTimeout(() => {
      this.timer = undefined
      this.flush(false)
    }, this.waitMs())
  }

  private waitMs(): number {
    const now = systemEffects.elapsed()
    let wait = this.client.settings.lingerMs
    for (const { waiting, busy, sentAt } of this.queues.values()) {
      if (waiting.length > 0 && !busy) wait = Math.min(wait, sentAt + this.client.settings.lingerMs - now)
    }
    return Math.max(0, wait)
  }

  private flush(all: boolean): void {
    const due = systemEffects.elapsed() - this.client.settings.lingerMs
    const byLeader = new Map<number, Batch[]>()
    let left = false
    for (const queue of this.queues.values()) {
      if (queue.waiting.length === 0 || queue.busy) continue
      if (!all && queue.sentAt > due) {
        left = true
        continue
      }
      const batch = { queue, items: takeBatch(queue.waiting) }
      queue.busy = true
      const leader = this.leaderOf(queue)
      const batches = byLeader.get(leader)
      if (batches) batches.push(batch)
      else byLeader.set(leader, [batch])
    }
    // One kafkajs call for each broker: if a call went to several brokers and one failed, kafkajs would send the
    // batches of the other brokers twice.
    for (const batches of byLeader.values()) for (const request of requestsOf(batches)) this.start(request)
    if (left) this.schedule()
  }

  private leaderOf({ topic, partition }: Queue): number {
    try {
      const found = this.cluster.findTopicPartitionMetadata(topic).find(one => one.partitionId === partition)
      return found?.leader ?? -1
    } catch {
      return -1 // leader not known yet; kafkajs looks it up
    }
  }

  private start(batches: readonly Batch[]): void {
    const now = systemEffects.elapsed()
    for (const { queue } of batches) queue.sentAt = now
    const running = this.send(batches).then(() => {
      this.sending.delete(running)
      if (systemEffects.elapsed() - now > slowMs) void this.cluster.refreshMetadata().catch(() => {})
      for (const { queue, items } of batches) {
        queue.busy = false
        for (const { bytes } of items) this.waitingBytes -= bytes
      }
      if (batches.some(({ queue }) => queue.waiting.length > 0)) this.schedule()
    })
    this.sending.add(running)
  }

  /** Sends batches and settles their calls; never rejects. */
  private async send(batches: readonly Batch[]): Promise<void> {
    const end = systemEffects.elapsed() + this.client.settings.deliveryTimeoutMs
    const producer = this.connected()
    let left = batches
    for (let pauseMs = 20; left.length > 0; pauseMs = Math.min(pauseMs * 2, maxPauseMs)) {
      try {
        const answers = await this.inTime(this.sendOnce(producer, left), left, end - systemEffects.elapsed())
        // kafkajs silently drops a partition whose leader moves to a broker that has answered already: its batches stay
        // without an answer.
        left = left.filter(batch => !this.settle(batch, answers))
        if (left.length > 0) throw unanswered(left, this.nameOf)
      } catch (thrown) {
        // kafkajs gives up at the first refused connection, so batches are sent again here: by the same producer, which
        // keeps their sequence numbers.
        if (passesByItself(thrown) && systemEffects.elapsed() + pauseMs < end) {
          await sleep(pauseMs)
          continue
        }
        if (this.producer === producer) this.replace()
        const error = kafkaError(thrown, `appending to ${namesOf(left, this.nameOf)}`, this.client.brokers)
        for (const { items } of left) for (const { call } of items) call.reject(error)
        return
      }
    }
  }

  private async sendOnce(producer: Connecting, batches: readonly Batch[]): Promise<readonly RecordMetadata[]> {
    const connected = await producer()
    return await connected.sendBatch({
      acks: -1,
      timeout: ackTimeoutMs,
      compression: this.client.compression,
      topicMessages: batches.map(({ queue, items }) => ({
        topic: queue.topic,
        messages: items.map(({ message }) => message),
      })),
    })
  }

  /**
   * Rejects a request that takes longer than `ms`, since kafkajs bounds the number of its retries but not their time.
   * If the request succeeds all the same, and the caller of `append` tries again, the records are in the log twice:
   * delivery is at least once.
   */
  private async inTime<T>(sent: Promise<T>, batches: readonly Batch[], ms: number): Promise<T> {
    const done = new AbortController()
    const late = sleep(Math.max(0, ms), undefined, { signal: done.signal }).then(() => {
      throw unanswered(batches, this.nameOf)
    })
    try {
      return await Promise.race([sent, late])
    } finally {
      done.abort()
      late.catch(() => {})
      sent.catch(() => {})
    }
  }

  private settle({ queue, items }: Batch, answers: readonly RecordMetadata[]): boolean {
    const answer = answers.find(one => one.topicName === queue.topic && one.partition === queue.partition)
    if (answer?.baseOffset === undefined) return false
    const base = Number(answer.baseOffset)
    const topic = this.nameOf(queue.topic)
    for (const [i, { call, index }] of items.entries()) {
      call.positions[index] = { topic, partition: queue.partition, offset: base + i }
      if (--call.open === 0) call.resolve(call.positions)
    }
    return true
  }

  /** Returns the function that connects the current producer: at its first call, and again if the connection failed. */
  private connected(): Connecting {
    if (this.producer) return this.producer
    const made = this.client.producer()
    let connecting: Promise<Producer> | undefined
    this.producer = () => {
      connecting ??= made.connect().then(() => made)
      connecting.catch(() => {
        connecting = undefined
      })
      return connecting
    }
    return this.producer
  }

  private replace(): void {
    const old = this.producer
    this.producer = undefined
    // Other batches may be in flight with the old producer, which is closed once they have ended.
    void Promise.allSettled([...this.sending]).then(() => old && disconnect(old))
  }
}

const disconnect = (producer: Connecting): Promise<void> =>
  producer().then(
    connected => connected.disconnect(),
    () => {},
  )
