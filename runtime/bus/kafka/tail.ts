/**
 * Follows the newest records of partitions: one long poll for each broker serves all cursors on its partitions.
 *
 * in   cursors, each with an offset and room for records      out  records to the cursors, in order
 * Invariants: a cursor gets every record from its offset on, once. A cursor without room is left out until its `wake`
 * is called. A cursor fails when its leader does not answer for `stallTimeoutMs`, when its offset stays past the
 * partition's end for 5 s, or at a permanent fault.
 *
 * A cursor that lags catches up with requests of its own; at the end of its partition it joins the long poll.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { systemEffects } from '../../effects'
import { awaitOffset } from '../awaitOffset'
import type { BusRecord } from '../bus'
import { busErrors } from '../busErrors'
import type { KafkaClient } from './client'
import { kafkaError, passesByItself } from './errors'
import { asLeader, type KafkaCluster } from './protocol'
import { type KafkaReader, partitionFetchBytes } from './reader'

/** Upper bound on the wait of a poll, ms. A new cursor waits until the running poll has ended: at most this long. */
const maxWaitMs = 100
const answerBytes = 16 * 1024 * 1024
const maxPauseMs = 1000

export interface CursorOptions {
  /** Topic of the cursor's partition, by its name on the broker. */
  readonly topic: string
  readonly partition: number
  readonly begin: number
  /** Receives records. Returns false when the cursor has no room for more. */
  readonly take: (records: readonly BusRecord[]) => boolean
  /** Called once, when the cursor fails; no records follow. */
  readonly onFailure: (thrown: unknown) => void
}

export interface Cursor {
  /** Reports that the cursor has room again. */
  wake(): void
  remove(): void
}

interface Follower extends CursorOptions {
  next: number
  /**
   * State of the cursor. paused: it has no room, or `wake` was never called. behind: catching up. following: in the
   * long poll. gone: removed or failed.
   */
  state: 'paused' | 'behind' | 'following' | 'gone'
  answeredAt: number
}

export class KafkaTail {
  private readonly followers = new Set<Follower>()
  private readonly polling = new Map<number, Promise<void>>()
  private readonly catching = new Set<Promise<void>>()
  private readonly topics = new Set<string>()
  private closed = false

  constructor(
    private readonly client: KafkaClient,
    /** Cluster whose connections carry only long polls. */
    private readonly cluster: KafkaCluster,
    private readonly reader: KafkaReader,
  ) {}

  add(options: CursorOptions): Cursor {
    const follower: Follower = { ...options, next: options.begin, state: 'paused', answeredAt: systemEffects.elapsed() }
    this.followers.add(follower)
    return {
      wake: () => {
        if (follower.state !== 'paused') return
        follower.state = 'behind'
        follower.answeredAt = systemEffects.elapsed()
        this.beginCatchUp(follower)
      },
      remove: () => {
        follower.state = 'gone'
        this.followers.delete(follower)
      },
    }
  }

  async close(): Promise<void> {
    this.closed = true
    for (const follower of this.followers) follower.state = 'gone'
    this.followers.clear()
    await Promise.all([...this.polling.values(), ...this.catching])
  }

  private async catchUp(follower: Follower): Promise<void> {
    try {
      while (follower.state === 'behind') {
        const { topic, partition, next } = follower
        const { records, end } = await this.reader.fetch(topic, partition, next, this.stalledAt(follower))
        if (end < follower.next) {
          follower.answeredAt = systemEffects.elapsed()
          await this.awaitEnd(follower)
          continue
        }
        this.deliver(follower, records)
        // An answer without records although `next` is below the end: only control records or a gap are left.
        if (follower.state === 'behind' && (follower.next >= end || records.length === 0)) {
          follower.state = 'following'
          await this.follow(follower)
        }
      }
    } catch (thrown) {
      this.fail(follower, thrown)
    }
  }

  /**
   * Waits for the partition's end to reach the cursor's offset. @throws TroupeError bus.offset_out_of_range if it does
   * not within 5 s
   */
  private async awaitEnd(follower: Follower): Promise<void> {
    const { reader } = this
    const { topic, partition, next } = follower
    const bounds = async () => {
      if (follower.state === 'gone') throw busErrors.closed() // the cursor was removed, so nobody receives this error
      await reader.cluster.refreshMetadata().catch(() => {}) // an error is ignored: the request that follows reports it
      return await reader.offsets(topic, partition, this.stalledAt(follower))
    }
    await awaitOffset(next, bounds, ({ oldest, next: end }) => reader.outOfRange(topic, partition, next, oldest, end))
  }

  private deliver(follower: Follower, records: readonly BusRecord[]): void {
    follower.answeredAt = systemEffects.elapsed()
    const last = records.at(-1)
    if (!last || follower.state === 'gone') return
    follower.next = last.offset + 1
    if (!follower.take(records) && follower.state !== ('gone' as Follower['state'])) follower.state = 'paused'
  }

  private fail(follower: Follower, thrown: unknown): void {
    if (follower.state === 'gone') return
    follower.state = 'gone'
    this.followers.delete(follower)
    follower.onFailure(thrown)
  }

  /**
   * Adds a cursor's topic to the cluster, and starts a poll on each broker that leads a followed partition and has no
   * poll.
   */
  private async follow(follower: Follower): Promise<void> {
    const { topic } = follower
    if (!this.topics.has(topic)) {
      const add = () => this.cluster.addMultipleTargetTopics([topic])
      await this.reader.retrying(`following ${topic}`, add, this.stalledAt(follower))
      this.topics.add(topic)
    }
    this.pollAll()
  }

  private pollAll(): void {
    for (const leader of this.byLeader().keys()) {
      if (this.closed || this.polling.has(leader)) continue
      const running = this.poll(leader).finally(() => {
        this.polling.delete(leader)
        // Cursors may have joined, or their leader may have moved here, while the poll was ending.
        if (!this.closed && this.byLeader().has(leader)) this.pollAll()
      })
      this.polling.set(leader, running)
    }
  }

  /** Groups the followers by the broker that leads their partition; -1 while a partition has no leader. */
  private byLeader(): Map<number, Follower[]> {
    const found = new Map<number, Follower[]>()
    for (const follower of this.followers) {
      if (follower.state !== 'following') continue
      const partitions = this.cluster.findTopicPartitionMetadata(follower.topic)
      const leader = partitions.find(one => one.partitionId === follower.partition)?.leader ?? -1
      const list = found.get(leader)
      if (list) list.push(follower)
      else found.set(leader, [follower])
    }
    return found
  }

  private async poll(leader: number): Promise<void> {
    for (let pauseMs = 20; !this.closed; ) {
      const followers = this.byLeader().get(leader)
      if (!followers) return
      try {
        await this.pollOnce(leader, followers)
        pauseMs = 20
      } catch (thrown) {
        if (this.closed) return
        if (!passesByItself(thrown)) this.requestAlone(followers)
        this.failStalled(followers, thrown)
        await sleep(pauseMs)
        pauseMs = Math.min(pauseMs * 2, maxPauseMs)
        await this.cluster.refreshMetadata().catch(() => {}) // an error is ignored: the next poll reports it
        this.pollAll()
      }
    }
  }

  private async pollOnce(leader: number, followers: readonly Follower[]): Promise<void> {
    const broker = asLeader(await this.cluster.findBroker({ nodeId: leader }))
    const from = new Map<string, Map<number, number>>()
    for (const { topic, partition, next } of followers) {
      const partitions = from.get(topic) ?? new Map<number, number>()
      from.set(topic, partitions.set(partition, Math.min(next, partitions.get(partition) ?? next)))
    }
    const topics = [...from].map(([topic, partitions]) => ({
      topic,
      partitions: [...partitions].map(([partition, offset]) => ({
        partition,
        fetchOffset: String(offset),
        maxBytes: partitionFetchBytes,
      })),
    }))
    const answer = await broker.fetch({
      replicaId: -1,
      isolationLevel: 0,
      maxWaitTime: maxWaitMs,
      minBytes: 1,
      maxBytes: answerBytes,
      topics,
    })
    for (const { topicName, partitions } of answer.responses) {
      for (const fetched of partitions) {
        for (const follower of followers) {
          if (follower.topic !== topicName || follower.partition !== fetched.partition) continue
          if (follower.state !== 'following') continue
          this.deliver(follower, this.reader.decoded(topicName, fetched, follower.next).records)
        }
      }
    }
  }

  /** Requests each partition alone, since kafkajs does not tell which partition of a request failed. */
  private requestAlone(followers: readonly Follower[]): void {
    for (const follower of followers.filter(({ state }) => state === 'following')) {
      follower.state = 'behind'
      this.beginCatchUp(follower) // the call is not awaited: a failing request takes seconds
    }
  }

  private beginCatchUp(follower: Follower): void {
    const running = this.catchUp(follower).finally(() => this.catching.delete(running))
    this.catching.add(running)
  }

  /** Returns the time, monotonic ms, at which the follower fails unless a broker answers before. */
  private stalledAt({ answeredAt }: Follower): number {
    return answeredAt + this.client.settings.stallTimeoutMs
  }

  private failStalled(followers: readonly Follower[], thrown: unknown): void {
    for (const follower of followers) {
      if (systemEffects.elapsed() < this.stalledAt(follower)) continue
      this.fail(follower, kafkaError(thrown, `following ${follower.topic}/${follower.partition}`, this.client.brokers))
    }
  }
}
