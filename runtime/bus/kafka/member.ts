/**
 * A member of a consumer group: joins, sends heartbeats, joins again when the group changes. It uses Kafka's classic
 * protocol with cooperative rebalancing: a member names the partitions that it holds when it joins, and keeps them
 * until it has released them.
 *
 * in   topics, the partitions held      out  the partitions assigned; loss of the membership; the error that ended it
 * Invariants: heartbeats continue whatever the handlers do. A partition that moves is assigned to nobody until its
 * holder has released it and joined again. After `close` or `onLost` no partition held before may be used.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { systemEffects } from '../../effects'
import { asError, TroupeError } from '../../errors'
import { assignPartitions, type TopicPartition } from '../assignment'
import type { KafkaClient } from './client'
import { findCoordinator } from './coordinator'
import { kafkaError, passesByItself, rootOf } from './errors'
import type { JoinedGroup, KafkaBroker, KafkaCluster } from './protocol'

const protocolName = 'troupe-cooperative'
const heartbeatsPerSession = 12
const maxHeartbeatMs = 1000
/**
 * Upper bound on the time that a rebalance waits for a member to join again, ms. A member joins without waiting for its
 * handlers.
 */
const rebalanceTimeoutMs = 15_000

export interface MemberOptions {
  readonly client: KafkaClient
  readonly group: string
  /** Topics to subscribe to, by their names on the broker. */
  readonly topics: readonly string[]
  readonly partitionsOf: (topic: string) => Promise<number>
  /** Returns the keys of the partitions that this member has not released. */
  readonly held: () => Iterable<string>
  /**
   * Called with this member's partitions after a rebalance.
   * @param settled true when no partition of the group waits for its holder to release it
   */
  readonly onAssigned: (partitions: readonly TopicPartition[], settled: boolean) => void
  /**
   * Called when the group has dropped this member, or may have: its partitions may belong to another member already.
   */
  readonly onLost: () => void
  /** Called once, when the member has ended with this error. */
  readonly onError: (error: TroupeError) => void
}

/** Claim that a member sends when it joins: the partitions that it holds. */
interface Claim {
  readonly held: readonly string[]
  /**
   * Generation of the assignment under which the member holds these partitions. Of two claims on a partition, the later
   * generation wins.
   */
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
  /** Time of the coordinator's last answer, monotonic ms. */
  private heardAt = systemEffects.elapsed()
  private wakeUp: () => void = () => {}
  private readonly ended: Promise<void>

  constructor(private readonly options: MemberOptions) {
    this.cluster = options.client.cluster()
    this.ended = this.run()
  }

  /** Returns this member's identity for commits: the coordinator refuses commits of non-members. */
  identity(): { readonly memberId: string; readonly generation: number } {
    return { memberId: this.memberId, generation: this.generation }
  }

  /**
   * True while the group cannot have reassigned this member's partitions: the coordinator's last answer is younger than
   * the session timeout.
   */
  isCurrent(): boolean {
    if (this.closed || this.heldSince < 0) return false
    return systemEffects.elapsed() - this.heardAt < this.options.client.settings.sessionTimeoutMs
  }

  /** Joins again after the held partitions have changed, which makes the group rebalance. */
  rejoin(): void {
    this.joinAgain = true
    this.wakeUp()
  }

  /** Leaves the group, so that other members need not wait for the session to end. */
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
          await this.sendHeartbeats()
        } catch (thrown) {
          this.handleFault(thrown)
          await this.pause(pauseMs)
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
    const { MemberMetadata, MemberAssignment } = client.groupProtocol
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
    this.heardAt = systemEffects.elapsed()
    const isLeader = joined.leaderId === joined.memberId
    const { memberAssignment } = await coordinator.syncGroup({
      groupId: group,
      generationId: joined.generationId,
      memberId: joined.memberId,
      groupAssignment: isLeader ? await this.assign(joined) : [],
    })
    this.heldSince = joined.generationId
    this.heardAt = systemEffects.elapsed()
    const decoded = MemberAssignment.decode(memberAssignment)
    const mine = Object.entries(decoded?.assignment ?? {}).flatMap(([topic, partitions]) =>
      partitions.map(partition => ({ topic, partition })),
    )
    const settled = decoded?.userData.toString() === 'settled'
    if (!this.closed) this.options.onAssigned(mine, settled)
  }

  /**
   * Computes the assignment, as the group's leader. A partition that another member still holds is assigned to nobody
   * this time.
   */
  private async assign({ members }: JoinedGroup): Promise<{ memberId: string; memberAssignment: Buffer }[]> {
    const { MemberMetadata, MemberAssignment } = this.options.client.groupProtocol
    const known = members.map(({ memberId, memberMetadata }, id) => {
      const { topics, userData } = MemberMetadata.decode(memberMetadata)!
      return { id, memberId, topics, claim: claimOf(userData, this.options.group) }
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
      memberAssignment: MemberAssignment.encode({ version: 0, assignment: shares[id]!, userData }),
    }))
  }

  /**
   * Sends heartbeats until the member must join again or closes; throws when the group changes, or when the coordinator
   * fails.
   */
  private async sendHeartbeats(): Promise<void> {
    const { group, client } = this.options
    const everyMs = Math.min(maxHeartbeatMs, client.settings.sessionTimeoutMs / heartbeatsPerSession)
    while (!this.closed && !this.joinAgain) {
      await this.pause(everyMs)
      if (this.closed || this.joinAgain) return
      await this.coordinator!.heartbeat({ groupId: group, groupGenerationId: this.generation, memberId: this.memberId })
      this.heardAt = systemEffects.elapsed()
    }
  }

  /**
   * Handles a fault. Returns if the member should join again (as a new member if the group has dropped it); throws if
   * the fault ends the member.
   */
  private handleFault(thrown: unknown): void {
    const { type } = rootOf(thrown)
    if (type === 'REBALANCE_IN_PROGRESS') {
      this.heardAt = systemEffects.elapsed() // any answer shows that the coordinator knows this member
      return
    }
    if (type === 'ILLEGAL_GENERATION' || type === 'UNKNOWN_MEMBER_ID') {
      if (type === 'UNKNOWN_MEMBER_ID') this.memberId = ''
      this.lose()
      return
    }
    if (type === 'INCONSISTENT_GROUP_PROTOCOL') throw foreignMembers(this.options.group)
    if (!passesByItself(thrown)) throw thrown
    const silentMs = systemEffects.elapsed() - this.heardAt
    this.coordinator = undefined
    if (silentMs > this.options.client.settings.sessionTimeoutMs) this.lose()
    if (silentMs > this.options.client.settings.stallTimeoutMs) throw thrown
    void this.cluster.refreshMetadata().catch(() => {}) // an error is ignored: the next attempt reports it
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
      // The coordinator did not answer; it drops the member when the session ends.
    }
    await this.cluster.disconnect().catch(() => {})
  }

  /** Sleeps, but ends early when the member must close or join again. */
  private async pause(ms: number): Promise<void> {
    if (this.closed || this.joinAgain) return
    const waking = new AbortController()
    this.wakeUp = () => waking.abort()
    await sleep(ms, undefined, { signal: waking.signal }).catch(() => {})
    this.wakeUp = () => {}
  }
}

function claimOf(userData: Buffer, group: string): Claim {
  try {
    const { held, generation } = JSON.parse(userData.toString()) as Claim
    return { held: held.map(String), generation: Number(generation) }
  } catch (thrown) {
    throw new TroupeError('bus.group_foreign', {
      boundary: 'bus',
      retriable: false,
      message: `a member of the group ${group} claimed partitions in a form that this version cannot read: ${asError(thrown).message}`,
      hint: 'run one version of Troupe in all processes of a run',
    })
  }
}

function foreignMembers(group: string): TroupeError {
  return new TroupeError('bus.group_foreign', {
    boundary: 'bus',
    retriable: false,
    message: `the group ${group} has members that deal out partitions in another way: another program, or another version of Troupe`,
    hint: 'end the consumers that use this group, or give the run another name',
  })
}
