/**
 * Leader election for a role that one process of a run has at a time. The leader is the member that owns the single
 * partition of the role's topic in the role's consumer group. The other members stand by; when the group misses the
 * leader's heartbeats, it gives the partition to one of them.
 *
 * in   a bus, a run, a role      out  onElected when this process becomes the leader, onLost when it no longer is
 * Invariant: `isLeader` is false from the moment at which the group may have elected another process. So a process that
 * was suspended for longer than a session finds `isLeader` false when it continues; `onLost` follows.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { topicOnBus, topics } from '../../messages'
import type { RunId } from '../../messages/ids'
import type { Bus, Subscription } from './bus'

/** Elected roles. The single partition of a role's topic (`topicOf`) decides who has the role. */
export type ElectedRole = 'learner' | 'scheduler'

const topicOf = { learner: topics.learner, scheduler: topics.turns } as const
const pollMs = 20

export interface ElectionOptions {
  readonly onElected: () => void
  /** Called when this process no longer leads; not after `release`. */
  readonly onLost: () => void
  readonly onError: (error: Error) => void
}

export interface Election {
  isLeader(): boolean
  /**
   * Resolves with true once this process certainly leads, with false when it is not elected or has released the role.
   * Waits while this process counts as elected although the group may have elected another one since.
   */
  confirmLeader(): Promise<boolean>
  release(): Promise<void>
}

/** Joins the election; resolves when the group has settled, so that this process leads or stands by. */
export async function joinElection(
  bus: Bus,
  run: RunId,
  name: ElectedRole,
  options: ElectionOptions,
): Promise<Election> {
  const { name: topicName, retentionMs } = topicOf[name]
  const topic = topicOnBus(run, topicName)
  // An existing topic is used as it is: it has the retention that was chosen when the run began. That may be shorter
  // than the one in `topics`, and createTopics might refuse it.
  const exists = (await bus.listTopics()).some(config => config.topic === topic)
  if (!exists) await bus.createTopics([{ topic, partitions: 1, retentionMs }])
  let isElected = false
  let released = false
  const member: Subscription = await bus.subscribe(
    {
      topics: [topic],
      group: `troupe.${run}.seat.${name}`,
      from: 'latest',
      onAssigned: async () => {
        isElected = true
        options.onElected()
        return undefined
      },
      onRevoked: async () => {
        isElected = false
        if (!released) options.onLost()
      },
      onError: options.onError,
    },
    async () => {},
  )
  member.pause(topic, 0) // only the partition's ownership matters, not its records
  const isLeader = () => isElected && !released && member.holds(topic, 0)
  return {
    isLeader,
    async confirmLeader() {
      while (isElected && !released) {
        if (isLeader()) return true
        await sleep(pollMs)
      }
      return false
    },
    async release() {
      released = true
      await member.close()
    },
  }
}
