/**
 * Feeds the partitions that this process follows: one long poll a broker for all of them, however many follow each.
 *
 * in   cursors, each with an offset and room for records      out  records to the cursors, in order
 * Invariants: a cursor gets every record from its offset on, once; one that has no room is not asked for until it wakes.
 * A cursor that had no answer from its leader for `stallTimeoutMs` fails instead of waiting in silence, and so does one
 * that is beyond the end of its partition.
 *
 * A cursor that is behind catches up with requests of its own; at the end of its partition it joins the long poll.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { systemEffects } from '../../effects'
import { awaitOffset } from '../awaitOffset'
import type { BusRecord } from '../bus'
import { busErrors } from '../busErrors'
import { asLeader, type KafkaClient, type KafkaCluster } from './client'
import { kafkaError, passesByItself } from './errors'
import { type KafkaReader, partitionFetchBytes } from './reader'

/** What a new cursor may wait at most until the poll that runs has ended. */
const maxWaitMs = 100
const answerBytes = 16 * 1024 * 1024
const maxPauseMs = 1000

export interface CursorOptions {
  /** As on the wire. */
  readonly topic: string
  readonly partition: number
  readonly begin: number
  /** Takes records; whether there is room for more. */
  readonly take: (records: readonly BusRecord[]) => boolean
  /** Called once; nothing is taken afterwards. */
  readonly onFailure: (thrown: unknown) => void
}

export interface Cursor {
  /** There is room again. */
  wake(): void
  remove(): void
}

interface Place extends CursorOptions {
  next: number
  /** resting: no room; behind: catches up; following: in the long poll. */
  state: 'resting' | 'behind' | 'following' | 'gone'
  answeredAt: number
}

export class KafkaTail {
  private readonly places = new Set<Place>()
  private readonly polling = new Map<number, Promise<void>>()
  private readonly catching = new Set<Promise<void>>()
  private readonly topics = new Set<string>()
  private closed = false

  constructor(
    private readonly client: KafkaClient,
    /** Its connections carry long polls only. */
    private readonly cluster: KafkaCluster,
    private readonly reader: KafkaReader,
  ) {}

  add(options: CursorOptions): Cursor {
    const place: Place = { ...options, next: options.begin, state: 'resting', answeredAt: systemEffects.elapsed() }
    this.places.add(place)
    return {
      wake: () => {
        if (place.state !== 'resting') return
        place.state = 'behind'
        place.answeredAt = systemEffects.elapsed()
        this.beginCatchUp(place)
      },
      remove: () => {
        place.state = 'gone'
        this.places.delete(place)
      },
    }
  }

  async close(): Promise<void> {
    this.closed = true
    for (const place of this.places) place.state = 'gone'
    this.places.clear()
    await Promise.all([...this.polling.values(), ...this.catching])
  }

  private async catchUp(place: Place): Promise<void> {
    try {
      while (place.state === 'behind') {
        const { topic, partition, next } = place
        const { records, end } = await this.reader.fetch(topic, partition, next, this.stalledAt(place))
        if (end < place.next) {
          place.answeredAt = systemEffects.elapsed()
          await this.untilItReaches(place)
          continue
        }
        this.give(place, records)
        // Without a record below the end there is nothing to catch up with: control records, or a gap.
        if (place.state === 'behind' && (place.next >= end || records.length === 0)) {
          place.state = 'following'
          await this.follow(place)
        }
      }
    } catch (thrown) {
      this.fail(place, thrown)
    }
  }

  /** @throws TroupeError bus.offset_out_of_range where the partition goes on ending before the cursor */
  private async untilItReaches(place: Place): Promise<void> {
    const { reader } = this
    const { topic, partition, next } = place
    const bounds = async () => {
      if (place.state === 'gone') throw busErrors.closed() // nobody hears of it
      await reader.cluster.refreshMetadata().catch(() => {}) // the request says what is wrong
      return await reader.offsets(topic, partition, this.stalledAt(place))
    }
    await awaitOffset(next, bounds, ({ oldest, next: end }) => reader.outOfRange(topic, partition, next, oldest, end))
  }

  private give(place: Place, records: readonly BusRecord[]): void {
    place.answeredAt = systemEffects.elapsed()
    const last = records.at(-1)
    if (!last || place.state === 'gone') return
    place.next = last.offset + 1
    if (!place.take(records) && place.state !== ('gone' as Place['state'])) place.state = 'resting'
  }

  private fail(place: Place, thrown: unknown): void {
    if (place.state === 'gone') return
    place.state = 'gone'
    this.places.delete(place)
    place.onFailure(thrown)
  }

  /** Makes sure that a poll runs on each broker that leads a followed partition. */
  private async follow(place: Place): Promise<void> {
    const { topic } = place
    if (!this.topics.has(topic)) {
      const add = () => this.cluster.addMultipleTargetTopics([topic])
      await this.reader.retrying(`following ${topic}`, add, this.stalledAt(place))
      this.topics.add(topic)
    }
    this.pollAll()
  }

  private pollAll(): void {
    for (const leader of this.byLeader().keys()) {
      if (this.closed || this.polling.has(leader)) continue
      const running = this.poll(leader).finally(() => {
        this.polling.delete(leader)
        // Who came, or whose leader moved here, while the poll was ending.
        if (!this.closed && this.byLeader().has(leader)) this.pollAll()
      })
      this.polling.set(leader, running)
    }
  }

  /** The places that follow, by the broker that leads their partition; -1 where none does now. */
  private byLeader(): Map<number, Place[]> {
    const found = new Map<number, Place[]>()
    for (const place of this.places) {
      if (place.state !== 'following') continue
      const partitions = this.cluster.findTopicPartitionMetadata(place.topic)
      const leader = partitions.find(one => one.partitionId === place.partition)?.leader ?? -1
      const list = found.get(leader)
      if (list) list.push(place)
      else found.set(leader, [place])
    }
    return found
  }

  private async poll(leader: number): Promise<void> {
    for (let pauseMs = 20; !this.closed; ) {
      const places = this.byLeader().get(leader)
      if (!places) return
      try {
        await this.pollOnce(leader, places)
        pauseMs = 20
      } catch (thrown) {
        if (this.closed) return
        if (!passesByItself(thrown)) this.single(places)
        this.failStalled(places, thrown)
        await sleep(pauseMs)
        pauseMs = Math.min(pauseMs * 2, maxPauseMs)
        await this.cluster.refreshMetadata().catch(() => {}) // the next poll says what is wrong
        this.pollAll()
      }
    }
  }

  private async pollOnce(leader: number, places: readonly Place[]): Promise<void> {
    const broker = asLeader(await this.cluster.findBroker({ nodeId: leader }))
    const from = new Map<string, Map<number, number>>()
    for (const { topic, partition, next } of places) {
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
        for (const place of places) {
          if (place.topic !== topicName || place.partition !== fetched.partition) continue
          if (place.state !== 'following') continue
          this.give(place, this.reader.decoded(topicName, fetched, place.next).records)
        }
      }
    }
  }

  /** kafkajs does not say which partition of a request was at fault: each is asked alone. */
  private single(places: readonly Place[]): void {
    for (const place of places.filter(({ state }) => state === 'following')) {
      place.state = 'behind'
      this.beginCatchUp(place) // not awaited: one that is at fault takes seconds, and the others follow again at once
    }
  }

  private beginCatchUp(place: Place): void {
    const running = this.catchUp(place).finally(() => this.catching.delete(running))
    this.catching.add(running)
  }

  /** When a place fails that is not answered before. */
  private stalledAt({ answeredAt }: Place): number {
    return answeredAt + this.client.settings.stallTimeoutMs
  }

  private failStalled(places: readonly Place[], thrown: unknown): void {
    for (const place of places) {
      if (systemEffects.elapsed() < this.stalledAt(place)) continue
      this.fail(place, kafkaError(thrown, `following ${place.topic}/${place.partition}`, this.client.brokers))
    }
  }
}
