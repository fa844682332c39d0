/**
 * A member of a consumer group: joins, heartbeats, joins again when the group changes. Kafka's classic protocol, and on it
 * cooperative handing over: what a member holds it names when it joins, and keeps until it has let go of it.
 *
 * in   which topics, what is held      out  which partitions are this member's now; that it was thrown out; why it ended
 * Invariants: heartbeats go on whatever handlers do. A partition that is to move is given to nobody until who holds it has
 * let go and joined again. After `close`, or after `onLost`, nothing that was held may be used.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { systemEffects } from '../../effects'
import { asError, TroupeError } from '../../errors'
import { assignPartitions, type TopicPartition } from '../assignment'
import type { JoinedGroup, KafkaBroker, KafkaClient, KafkaCluster } from './client'
import { findCoordinator } from './coordinator'
import { kafkaError, passesByItself, rootOf } from './errors'

const protocolName = 'troupe-cooperative'
const heartbeatsPerSession = 12
const maxHeartbeatMs = 1000
/** How long the others wait for a member that does not join again. It never waits for handlers to do so. */
const rebalanceTimeoutMs = 15_000

export interface MemberOptions {
  readonly client: KafkaClient
  readonly group: string
  /** As on the wire. */
  readonly topics: readonly string[]
  readonly partitionsOf: (topic: string) => Promise<number>
  /** Keys of the partitions that this member has not let go of. */
  readonly held: () => Iterable<string>
  /** `settled`: no partition of the group waits for somebody to let go. */
  readonly onAssigned: (partitions: readonly TopicPartition[], settled: boolean) => void
  /** The group went on without this member: whatever it held may be another's already. */
  readonly onLost: () => void
  /** It can go no further. */
  readonly onError: (error: TroupeError) => void
}

/** What a member says when it joins. */
interface Claim {
  readonly held: readonly string[]
  /** Of the assignment under which it holds them: of two who claim a partition, the later one has it. */
  readonly generation: number
}

export class KafkaMember {
  readonly cluster: KafkaCluster
  private memberId = ''
  private generation = -1
  private heldSince = -1
  private closed = false
  private joinAgain = false
  private coordinator: KafkaBroker | undefined
  /** When the coordinator last answered. */
  private beatAt = systemEffects.elapsed()
  private wakeUp: () => void = () => {}
  private readonly ended: Promise<void>

  constructor(private readonly options: MemberOptions) {
    this.cluster = options.client.cluster()
    this.ended = this.run()
  }

  /** What a commit must carry, for the coordinator to know who commits. */
  identity(): { readonly memberId: string; readonly generation: number } {
    return { memberId: this.memberId, generation: this.generation }
  }

  /** Whether the group cannot have given this member's partitions away yet: it was heard within the session. */
  isCurrent(): boolean {
    if (this.closed || this.heldSince < 0) return false
    return systemEffects.elapsed() - this.beatAt < this.options.client.settings.sessionTimeoutMs
  }

  /** What is held has changed: the group deals anew. */
  rejoin(): void {
    this.joinAgain = true
    this.wakeUp()
  }

  /** Leaves the group, so that the others need not wait for the session to end. */
  async close(): Promise<void> {
    this.closed = true
    this.wakeUp()
    await this.ended
  }

  private async run(): Promise<void> {
    try {
      for (let pauseMs = 50; !this.closed; ) {
        try {
          await this.join()
          pauseMs = 50
          await this.beat()
        } catch (thrown) {
          this.judge(thrown)
          await this.rest(pauseMs)
          pauseMs = Math.min(pauseMs * 2, 1000)
        }
      }
    } catch (thrown) {
      this.closed = true
      this.options.onError(kafkaError(thrown, `in the group ${this.options.group}`, this.options.client.brokers))
    }
    await this.leave()
  }

  private async join(): Promise<void> {
    const { group, client, topics, held } = this.options
    await this.cluster.connect()
    await this.cluster.addMultipleTargetTopics(topics)
    this.coordinator ??= await findCoordinator(this.cluster, group)
    const { coordinator } = this
    this.joinAgain = false
    const claim: Claim = { held: [...held()], generation: this.heldSince }
    const { AssignerProtocol } = require('kafkajs') as typeof import('kafkajs')
    const { MemberMetadata, MemberAssignment } = AssignerProtocol
    const userData = Buffer.from(JSON.stringify(claim))
    const metadata = MemberMetadata.encode({ version: 0, topics: [...topics], userData })
    const joined = await coordinator.joinGroup({
      groupId: group,
      sessionTimeout: client.settings.sessionTimeoutMs,
      rebalanceTimeout: rebalanceTimeoutMs,
      memberId: this.memberId,
      groupProtocols: [{ name: protocolName, metadata }],
    })
    this.memberId = joined.memberId
    this.generation = joined.generationId
    this.beatAt = systemEffects.elapsed()
    const isLeader = joined.leaderId === joined.memberId
    const { memberAssignment } = await coordinator.syncGroup({
      groupId: group,
      generationId: joined.generationId,
      memberId: joined.memberId,
      groupAssignment: isLeader ? await this.deal(joined) : [],
    })
    this.heldSince = joined.generationId
    this.beatAt = systemEffects.elapsed()
    const decoded = MemberAssignment.decode(memberAssignment)
    const mine = Object.entries(decoded?.assignment ?? {}).flatMap(([topic, partitions]) =>
      partitions.map(partition => ({ topic, partition })),
    )
    const settled = decoded?.userData.toString() === 'settled'
    if (!this.closed) this.options.onAssigned(mine, settled)
  }

  /** The leader's part: who gets what. A partition that another member still holds goes to nobody this time. */
  private async deal({ members }: JoinedGroup): Promise<{ memberId: string; memberAssignment: Buffer }[]> {
    const { AssignerProtocol } = require('kafkajs') as typeof import('kafkajs')
    const known = members.map(({ memberId, memberMetadata }, id) => {
      const { topics, userData } = AssignerProtocol.MemberMetadata.decode(memberMetadata)!
      return { id, memberId, topics, claim: claimOf(userData) }
    })
    const holder = new Map<string, { id: number; generation: number }>()
    for (const { id, claim } of known) {
      for (const key of claim.held) {
        if ((holder.get(key)?.generation ?? -2) < claim.generation)
          holder.set(key, { id, generation: claim.generation })
      }
    }
    const counts = new Map<string, number>()
    for (const topic of new Set(known.flatMap(one => one.topics))) {
      counts.set(topic, await this.options.partitionsOf(topic))
    }
    const current = new Map([...holder].map(([key, { id }]) => [key, id]))
    const target = assignPartitions(known, topic => counts.get(topic)!, current)
    const shares = known.map(({ topics }) => Object.fromEntries(topics.map(topic => [topic, [] as number[]])))
    let settled = true
    for (const [key, { owner, at }] of target) {
      if ((current.get(key) ?? owner) !== owner) settled = false
      else shares[owner]![at.topic]!.push(at.partition)
    }
    const userData = Buffer.from(settled ? 'settled' : '')
    return known.map(({ id, memberId }) => ({
      memberId,
      memberAssignment: AssignerProtocol.MemberAssignment.encode({ version: 0, assignment: shares[id]!, userData }),
    }))
  }

  /** Until the group changes; throws when it does, or when it cannot be told. */
  private async beat(): Promise<void> {
    const { group, client } = this.options
    const everyMs = Math.min(maxHeartbeatMs, client.settings.sessionTimeoutMs / heartbeatsPerSession)
    while (!this.closed && !this.joinAgain) {
      await this.rest(everyMs)
      if (this.closed || this.joinAgain) return
      await this.coordinator!.heartbeat({ groupId: group, groupGenerationId: this.generation, memberId: this.memberId })
      this.beatAt = systemEffects.elapsed()
    }
  }

  /** What follows from a fault: join again, as a new member where the group has forgotten this one; or throw it. */
  private judge(thrown: unknown): void {
    const { type } = rootOf(thrown)
    if (type === 'REBALANCE_IN_PROGRESS') {
      this.beatAt = systemEffects.elapsed() // the coordinator knows us
      return
    }
    if (type === 'ILLEGAL_GENERATION' || type === 'UNKNOWN_MEMBER_ID') {
      if (type === 'UNKNOWN_MEMBER_ID') this.memberId = ''
      this.lose()
      return
    }
    if (type === 'INCONSISTENT_GROUP_PROTOCOL') throw foreignMembers(this.options.group)
    if (!passesByItself(thrown)) throw thrown
    const silentMs = systemEffects.elapsed() - this.beatAt
    this.coordinator = undefined
    if (silentMs > this.options.client.settings.sessionTimeoutMs) this.lose()
    if (silentMs > this.options.client.settings.stallTimeoutMs) throw thrown
    void this.cluster.refreshMetadata().catch(() => {}) // the next try says what is wrong
  }

  private lose(): void {
    if (this.heldSince < 0) return
    this.heldSince = -1
    this.options.onLost()
  }

  private async leave(): Promise<void> {
    const { group } = this.options
    try {
      if (this.memberId !== '') {
        const coordinator = this.coordinator ?? (await findCoordinator(this.cluster, group))
        await coordinator.leaveGroup({ groupId: group, memberId: this.memberId })
      }
    } catch {
      // It did not answer: the session's end says the same.
    }
    await this.cluster.disconnect().catch(() => {})
  }

  /** Sleeps, unless something is to be done before. */
  private async rest(ms: number): Promise<void> {
    if (this.closed || this.joinAgain) return
    const waking = new AbortController()
    this.wakeUp = () => waking.abort()
    await sleep(ms, undefined, { signal: waking.signal }).catch(() => {})
    this.wakeUp = () => {}
  }
}

function claimOf(userData: Buffer): Claim {
  try {
    const { held, generation } = JSON.parse(userData.toString()) as Claim
    return { held: held.map(String), generation: Number(generation) }
  } catch (thrown) {
    throw new TroupeError('bus.group_foreign', {
      boundary: 'bus',
      retriable: false,
      message: `a member of the group says what this version does not understand: ${asError(thrown).message}`,
      hint: 'run one version of Troupe in all processes of a run',
    })
  }
}

function foreignMembers(group: string): TroupeError {
  return new TroupeError('bus.group_foreign', {
    boundary: 'bus',
    retriable: false,
    message: `the group ${group} has members that are not Troupe's`,
    hint: 'give the run another name, or end the consumers that use this group',
  })
}
