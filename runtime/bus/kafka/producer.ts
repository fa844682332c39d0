/**
 * Appends to Kafka in batches: records that come while a batch of their partition is on its way go together in the next.
 *
 * in   placed records      out  their positions, once all replicas in sync have them
 * Invariants: one batch of a partition is on its way at a time, so its records stand in the order of the calls, and those
 * of one call side by side. A batch whose fate is unknown is sent again under the same sequence number; given up, it is
 * an error, and the producer is replaced, because kafkajs would use that number again and the broker drop what has it.
 * The file is longer than 320 lines because the order of batches and the replacement of a producer share one state.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Message, Producer, RecordMetadata } from 'kafkajs'
import { systemEffects } from '../../effects'
import { TroupeError } from '../../errors'
import type { Position } from '../bus'
import { busErrors } from '../busErrors'
import type { PlacedRecord } from '../partitionedLog'
import type { KafkaClient, KafkaCluster } from './client'
import { kafkaError, passesByItself } from './errors'

/** Of one partition in one request: a topic takes batches up to 1,048,588 bytes unless it is set otherwise. */
const batchBytes = 1_000_000
/** Of one request. */
const requestBytes = 8 * 1024 * 1024
/** What may wait; more is refused, not held. */
const maxWaitingBytes = 64 * 1024 * 1024
/** Of a record besides key, headers and value, and of each header: lengths, offset, time. */
const recordOverhead = 24
const headerOverhead = 8
const closeDeadlineMs = 15_000
/** How long a leader waits for its followers. */
const ackTimeoutMs = 10_000
/** A request that took longer met a broker that went: leaders are looked up anew. */
const slowMs = 1000
const maxPauseMs = 1000

type Connecting = () => Promise<Producer>

interface Call {
  readonly positions: Position[]
  open: number
  readonly resolve: (positions: readonly Position[]) => void
  readonly reject: (error: Error) => void
}

interface Item {
  readonly call: Call
  readonly index: number
  readonly message: Message
  readonly bytes: number
}

interface Queue {
  readonly topic: string
  readonly partition: number
  readonly waiting: Item[]
  busy: boolean
  sentAt: number
}

interface Batch {
  readonly queue: Queue
  readonly items: readonly Item[]
}

export class KafkaProducer {
  private readonly queues = new Map<string, Queue>()
  private producer: Connecting | undefined
  private waitingBytes = 0
  private timer: NodeJS.Timeout | undefined
  private readonly sending = new Set<Promise<void>>()

  constructor(
    private readonly client: KafkaClient,
    /** Says who leads a partition. */
    private readonly cluster: KafkaCluster,
    private readonly nameOf: (topicOnWire: string) => string,
  ) {}

  /** Topics are named as on the wire. Throws bus.overloaded, bus.unreachable, bus.not_enough_replicas and the like. */
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

  /** After what was appended before; what no broker takes within the deadline is given up with `bus.closed`. */
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
    else void disconnect(producer) // it waits for an answer that may never come
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

  /** At the end of this turn for who has rested longer than the linger, else when that is over. */
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
      const batch = { queue, items: cut(queue.waiting) }
      queue.busy = true
      const leader = this.leaderOf(queue)
      const batches = byLeader.get(leader)
      if (batches) batches.push(batch)
      else byLeader.set(leader, [batch])
    }
    // A call of kafkajs for each broker: it sends twice to one broker when another one of the same call fails.
    for (const batches of byLeader.values()) for (const request of requestsOf(batches)) this.start(request)
    if (left) this.schedule()
  }

  private leaderOf({ topic, partition }: Queue): number {
    try {
      const found = this.cluster.findTopicPartitionMetadata(topic).find(one => one.partitionId === partition)
      return found?.leader ?? -1
    } catch {
      return -1 // not known yet; kafkajs finds it
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

  /** Settles the calls of every batch; never rejects. */
  private async send(batches: readonly Batch[]): Promise<void> {
    const end = systemEffects.elapsed() + this.client.settings.deliveryTimeoutMs
    const producer = this.connected()
    let left = batches
    for (let pauseMs = 20; left.length > 0; pauseMs = Math.min(pauseMs * 2, maxPauseMs)) {
      try {
        const answers = await this.inTime(this.sendOnce(producer, left), left, end - systemEffects.elapsed())
        // When a partition's leader moves to a broker that has answered already, kafkajs drops it without a word.
        left = left.filter(batch => !this.settle(batch, answers))
        if (left.length > 0) throw unanswered(left, this.nameOf)
      } catch (thrown) {
        // kafkajs gives up at the first connection that is refused. The same producer again: the same sequence numbers.
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

  /** kafkajs counts its tries, each of which may take long. What it still does after the deadline is at least once. */
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

  /** The producer in use, which connects when it is first asked, and again where that failed. */
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
    // Other batches may be on their way with it: it is left to end by itself.
    void Promise.allSettled([...this.sending]).then(() => old && disconnect(old))
  }
}

const disconnect = (producer: Connecting): Promise<void> =>
  producer().then(
    connected => connected.disconnect(),
    () => {},
  )

/** From the front, as much as a batch holds; at least one. */
function cut(waiting: Item[]): readonly Item[] {
  let bytes = 0
  let count = 0
  for (const item of waiting) {
    if (count > 0 && bytes + item.bytes > batchBytes) break
    bytes += item.bytes
    count++
  }
  return waiting.splice(0, count)
}

function requestsOf(batches: readonly Batch[]): readonly (readonly Batch[])[] {
  const requests: Batch[][] = []
  let bytes = Number.POSITIVE_INFINITY
  for (const batch of batches) {
    const size = batch.items.reduce((sum, item) => sum + item.bytes, 0)
    if (bytes + size > requestBytes) {
      requests.push([])
      bytes = 0
    }
    requests.at(-1)!.push(batch)
    bytes += size
  }
  return requests
}

/** A copy: whoever appended may change the bytes before they are sent. */
const messageOf = ({ key, headers, value, partition }: PlacedRecord): Message => ({
  key,
  partition,
  headers: { ...headers },
  value: Buffer.from(value),
})

function sizeOf({ key, headers, value }: PlacedRecord): number {
  let bytes = recordOverhead + Buffer.byteLength(key) + value.length
  for (const name in headers) bytes += headerOverhead + Buffer.byteLength(name) + Buffer.byteLength(headers[name]!)
  return bytes
}

const namesOf = (batches: readonly Batch[], nameOf: (topic: string) => string): string =>
  batches.map(({ queue }) => `${nameOf(queue.topic)}/${queue.partition}`).join(', ')

function unanswered(batches: readonly Batch[], nameOf: (topic: string) => string): TroupeError {
  return new TroupeError('bus.append_unanswered', {
    boundary: 'bus',
    retriable: true,
    message: `no broker said what became of the records for ${namesOf(batches, nameOf)}`,
    hint: 'they may be there or not: append them again under the same ids',
  })
}
