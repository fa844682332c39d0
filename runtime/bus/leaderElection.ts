/**
 * A seat: a part of a run that one process has at a time. Who owns the single partition of the seat's topic in the seat's
 * group sits; the other members stand by, and one of them is given the seat when the group has missed its owner.
 *
 * in   a bus, a run, which part      out  onElected when the seat is ours, onLost when it is not any more
 * Invariant: `isLeader` is false from the moment at which the group may have given the seat away; who was stopped for longer
 * than a session and wakes up is told so before it is told anything else.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { topicOnBus, topics } from '../../messages'
import type { RunId } from '../../messages/ids'
import type { Bus, Subscription } from './bus'

/** The parts, by the topic whose owner has them. */
export type ElectedRole = 'learner' | 'scheduler'

const topicOf = { learner: topics.learner, scheduler: topics.turns } as const
const askAgainMs = 20

export interface ElectionOptions {
  readonly onElected: () => void
  /** Not after `release`. */
  readonly onLost: () => void
  readonly onError: (error: Error) => void
}

export interface Election {
  isLeader(): boolean
  /** True as soon as the seat is known to be ours; false when it is another's. A seat in doubt is waited for. */
  confirmLeader(): Promise<boolean>
  release(): Promise<void>
}

/** Resolves when the group has settled: the seat is taken by then, or this process stands by. */
export async function joinElection(
  bus: Bus,
  run: RunId,
  name: ElectedRole,
  options: ElectionOptions,
): Promise<Election> {
  const { name: topicName, retentionMs } = topicOf[name]
  const topic = topicOnBus(run, topicName)
  await bus.createTopics([{ topic, partitions: 1, retentionMs }])
  let given = false
  let released = false
  const member: Subscription = await bus.subscribe(
    {
      topics: [topic],
      group: `troupe.${run}.seat.${name}`,
      from: 'latest',
      onAssigned: async () => {
        given = true
        options.onElected()
        return undefined
      },
      onRevoked: async () => {
        given = false
        if (!released) options.onLost()
      },
      onError: options.onError,
    },
    async () => {},
  )
  member.pause(topic, 0) // the seat is wanted, not the records
  const isLeader = () => given && !released && member.holds(topic, 0)
  return {
    isLeader,
    async confirmLeader() {
      while (given && !released) {
        if (isLeader()) return true
        await sleep(askAgainMs)
      }
      return false
    },
    async release() {
      released = true
      await member.close()
    },
  }
}
