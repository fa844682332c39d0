/**
 * Reads single partitions: records from an offset, the oldest and next offset, a group's committed offset.
 *
 * in   topic, partition, offset or group      out  records of that partition, in order; offsets
 * Invariant: a request that meets a transient fault (`passesByItself`: a broker went away, a leader moved, …) is
 * retried until its deadline; any other fault is an error of the bus at once. Records are copies that the receiver
 * owns.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { systemEffects } from '../../effects'
import type { TroupeError } from '../../errors'
import type { Bounds } from '../awaitOffset'
import type { BusRecord } from '../bus'
import { busErrors } from '../busErrors'
import type { KafkaClient } from './client'
import { findCoordinator } from './coordinator'
import { kafkaError, passesByItself, rootOf } from './errors'
import { asLeader, type FetchedPartition, type FetchedRecord, type KafkaBroker, type KafkaCluster } from './protocol'

/**
 * Upper bound on the bytes of a partition in a fetch. It is above the largest batch that a topic accepts by default
 * (1,048,588 bytes), so that such a batch always fits.
 */
export const partitionFetchBytes = 2 * 1024 * 1024
const answerBytes = 16 * 1024 * 1024
const deadlineMs = 30_000
const oldestTimestamp = -2
const nextTimestamp = -1

export interface Fetched {
  readonly records: readonly BusRecord[]
  /** Offset of the partition's next record; below the requested offset if the request was past the partition's end. */
  readonly end: number
}

export class KafkaReader {
  private readonly coordinators = new Map<string, Promise<KafkaBroker>>()
  private closed = false

  constructor(
    private readonly client: KafkaClient,
    readonly cluster: KafkaCluster,
    private readonly nameOf: (topicOnWire: string) => string,
  ) {}

  /** Stops retries: pending requests fail with their last error, or with `bus.closed`. */
  close(): void {
    this.closed = true
  }

  /**
   * Fetches the records from `offset` on in one request, about `partitionFetchBytes` at most.
   * @param until the deadline for retries, on the clock of `elapsed`; default: 30 s from now
   * @throws TroupeError bus.offset_out_of_range below the oldest offset
   */
  async fetch(topic: string, partition: number, offset: number, until?: number): Promise<Fetched> {
    const ask = async (broker: KafkaBroker): Promise<Fetched> => {
      const answer = await broker.fetch({
        replicaId: -1,
        isolationLevel: 0,
        maxWaitTime: 0,
        minBytes: 0,
        maxBytes: answerBytes,
        topics: [{ topic, partitions: [{ partition, fetchOffset: String(offset), maxBytes: partitionFetchBytes }] }],
      })
      const [found] = answer.responses[0]?.partitions ?? []
      return found ? this.decoded(topic, found, offset) : { records: [], end: offset }
    }
    try {
      return await this.onLeader(`reading ${topic}/${partition}`, topic, partition, ask, until)
    } catch (thrown) {
      if (rootOf((thrown as Error).cause).type !== 'OFFSET_OUT_OF_RANGE') throw thrown
      const { oldest, next } = await this.offsets(topic, partition, until)
      if (offset >= next) return { records: [], end: next }
      throw this.outOfRange(topic, partition, offset, oldest, next)
    }
  }

  outOfRange(topic: string, partition: number, offset: number, oldest: number, next: number): TroupeError {
    return busErrors.offsetOutOfRange(this.nameOf(topic), partition, offset, oldest, next)
  }

  /**
   * Converts the answer of a fetch. `from`: first offset to keep, since a batch may begin before the requested offset.
   */
  decoded(topic: string, { partition, messages, highWatermark }: FetchedPartition, from: number): Fetched {
    const name = this.nameOf(topic)
    const records: BusRecord[] = []
    for (const message of messages) {
      const offset = Number(message.offset)
      if (offset >= from && !message.isControlRecord) records.push(toRecord(name, partition, offset, message))
    }
    return { records, end: Number(highWatermark) }
  }

  async offsets(topic: string, partition: number, until?: number): Promise<Bounds> {
    const at = (timestamp: number): Promise<number> => {
      const topics = [{ topic, partitions: [{ partition, timestamp }] }]
      const ask = async (broker: KafkaBroker): Promise<number> => {
        const { responses } = await broker.listOffsets({ replicaId: -1, isolationLevel: 0, topics })
        return Number(responses[0]!.partitions[0]!.offset)
      }
      return this.onLeader(`reading the offsets of ${topic}/${partition}`, topic, partition, ask, until)
    }
    const [oldest, next] = await Promise.all([at(oldestTimestamp), at(nextTimestamp)])
    return { oldest, next }
  }

  async committed(groupId: string, topic: string, partition: number): Promise<number | undefined> {
    const { responses } = await this.retrying(`reading the committed offset of ${groupId}`, async () => {
      const coordinator = await this.coordinatorOf(groupId)
      return await coordinator.offsetFetch({ groupId, topics: [{ topic, partitions: [{ partition }] }] })
    })
    const offset = Number(responses[0]?.partitions[0]?.offset ?? -1)
    return offset < 0 ? undefined : offset
  }

  /** Returns the group's coordinator, which is looked up once, and again after a fault. */
  coordinatorOf(groupId: string): Promise<KafkaBroker> {
    let found = this.coordinators.get(groupId)
    if (!found) {
      found = findCoordinator(this.cluster, groupId)
      this.coordinators.set(groupId, found)
      found.catch(() => this.coordinators.delete(groupId))
    }
    return found
  }

  /** Runs `act` on the broker that currently leads the partition. */
  async onLeader<T>(
    doing: string,
    topic: string,
    partition: number,
    act: (broker: KafkaBroker) => Promise<T>,
    until?: number,
  ): Promise<T> {
    const ask = async (): Promise<T> => {
      await this.cluster.addMultipleTargetTopics([topic])
      const found = this.cluster.findTopicPartitionMetadata(topic).find(one => one.partitionId === partition)
      return await act(asLeader(await this.cluster.findBroker({ nodeId: found?.leader ?? -1 })))
    }
    return await this.retrying(doing, ask, until)
  }

  /**
   * Retries transient faults with growing pauses until the deadline. @throws TroupeError for a permanent fault at once,
   * for a transient one at the deadline
   */
  async retrying<T>(doing: string, act: () => Promise<T>, until = systemEffects.elapsed() + deadlineMs): Promise<T> {
    if (this.closed) throw busErrors.closed()
    for (let pauseMs = 20; ; pauseMs = Math.min(pauseMs * 2, 1000)) {
      try {
        return await act()
      } catch (thrown) {
        const leftMs = until - systemEffects.elapsed()
        if (this.closed || !passesByItself(thrown) || leftMs <= 0) {
          throw kafkaError(thrown, doing, this.client.brokers)
        }
        await sleep(Math.min(pauseMs, leftMs))
        if (this.closed) throw busErrors.closed()
        this.coordinators.clear()
        await this.cluster.refreshMetadata().catch(() => {}) // an error is ignored: the next attempt reports it
      }
    }
  }
}

function toRecord(topic: string, partition: number, offset: number, message: FetchedRecord): BusRecord {
  const headers: Record<string, string> = {}
  for (const name of Object.keys(message.headers)) {
    const value = message.headers[name]
    // kafkajs turns a header into a list if its name is also a property of Object.prototype; the record's own value
    // comes last.
    const bytes = Array.isArray(value) ? value.at(-1) : value
    const text = bytes === null || bytes === undefined ? '' : (bytes as Buffer).toString()
    if (name === '__proto__')
      Object.defineProperty(headers, name, { value: text, enumerable: true, configurable: true, writable: true })
    else headers[name] = text
  }
  return {
    topic,
    partition,
    offset,
    timestamp: Number(message.timestamp),
    key: message.key?.toString() ?? '',
    headers,
    value: new Uint8Array(message.value ?? []),
  }
}
