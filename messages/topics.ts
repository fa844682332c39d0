/**
 * The topic table: the topic and key of every message, and how long each topic is kept.
 * A topic's name on a bus contains the run: `troupe.<run>.<topic>`.
 */
import type { Command } from './commands'
import type { Fact } from './facts'
import { groupOf, type RunId } from './ids'

export type Message = Fact | Command
export type MessageType = Message['type']

export type TopicName =
  | 'runs'
  | 'trajectories'
  | 'learner'
  | 'turns'
  | 'tool-calls'
  | 'verifications'
  | 'assignments'
  | 'inboxes'
  | 'telemetry'
  | 'control'
  | 'dead-letters'

export interface TopicSpec {
  readonly name: TopicName
  readonly holds: 'facts' | 'commands' | 'telemetry' | 'dead-letters'
  /**
   * Milliseconds after which the bus may drop a record; null: never. For topics of commands, the recipe's
   * `log.commandRetentionMs` replaces it.
   */
  readonly retentionMs: number | null
  /** True: one partition, so all readers see one order. False: as many partitions as the run was started with. */
  readonly single: boolean
  /**
   * Allows a `single` topic that the user created on the bus to have several partitions. A role that needs one
   * partition then refuses to start.
   */
  readonly ownMayBeMany?: true
}

const day = 24 * 3600 * 1000

export const topics: Readonly<Record<TopicName, TopicSpec>> = {
  runs: { name: 'runs', holds: 'facts', retentionMs: null, single: true },
  trajectories: { name: 'trajectories', holds: 'facts', retentionMs: null, single: false },
  learner: { name: 'learner', holds: 'facts', retentionMs: null, single: true },
  turns: { name: 'turns', holds: 'commands', retentionMs: day, single: true },
  'tool-calls': { name: 'tool-calls', holds: 'commands', retentionMs: day, single: true, ownMayBeMany: true },
  verifications: { name: 'verifications', holds: 'commands', retentionMs: day, single: false },
  assignments: { name: 'assignments', holds: 'commands', retentionMs: day, single: false },
  inboxes: { name: 'inboxes', holds: 'commands', retentionMs: day, single: false },
  telemetry: { name: 'telemetry', holds: 'telemetry', retentionMs: null, single: true },
  control: { name: 'control', holds: 'commands', retentionMs: day, single: true },
  'dead-letters': { name: 'dead-letters', holds: 'dead-letters', retentionMs: null, single: true },
}

/** Returns the name of a run's topic on the bus. It contains the run, since several runs may share a bus. */
export const topicOnBus = (run: RunId, topic: TopicName): string => `troupe.${run}.${topic}`

/** Returns the topic and the key of a message. */
export function routeOf(message: Message, run: RunId): { readonly topic: TopicName; readonly key: string } {
  switch (message.type) {
    case 'run.started':
    case 'run.resumed':
    case 'run.finished':
    case 'engine.joined':
    case 'engine.left':
    case 'engine.slept':
    case 'engine.woke':
    case 'weights.applied':
    case 'evaluation.completed':
    case 'curriculum.advanced':
    case 'draws.claimed':
    case 'tasks.measured':
    case 'step.tallied':
    case 'trajectory.forked':
    case 'record.refused':
    case 'control.obeyed':
    case 'alarm.raised':
      return { topic: 'runs', key: run }
    case 'partition.claimed':
    case 'scheduler.claimed':
    case 'curriculum.claimed':
      return { topic: 'trajectories', key: String(message.partition) }
    case 'rollout.requested':
    case 'group.closed':
    case 'group.selected':
    case 'group.rejected':
      return { topic: 'trajectories', key: message.group }
    case 'rollout.started':
    case 'turn.asked':
    case 'turn.completed':
    case 'turn.interrupted':
    case 'tool.asked':
    case 'tool.completed':
    case 'context.appended':
    case 'rollout.finished':
    case 'reward.assigned':
    case 'reward.failed':
    case 'session.opened':
    case 'call.started':
    case 'call.finished':
    case 'call.delivered':
      return { topic: 'trajectories', key: groupOf(message.trajectory) }
    case 'learner.claimed':
    case 'step.started':
    case 'step.completed':
    case 'step.rejected':
    case 'weights.published':
    case 'checkpoint.saved':
    case 'checkpoint.removed':
    case 'stage.changed':
    case 'stage.progressed':
      return { topic: 'learner', key: run }
    case 'turn.generate':
    case 'trajectory.release':
      return { topic: 'turns', key: groupOf(message.trajectory) }
    case 'turn.assign':
    case 'trajectory.evict':
      return { topic: 'assignments', key: message.engine }
    case 'tool.execute':
    case 'tool.cancel':
      return { topic: 'tool-calls', key: message.trajectory }
    case 'executor.slots':
    case 'tools.ended':
      return { topic: 'tool-calls', key: message.executor }
    case 'tools.assign':
    case 'tools.abort':
    case 'executor.refused':
      return { topic: 'inboxes', key: message.executor }
    case 'code.ended':
      return { topic: 'inboxes', key: message.front }
    case 'answer.verify':
      return { topic: 'verifications', key: message.trajectory }
    case 'run.control':
      return { topic: 'control', key: run }
    case 'engine.status':
    case 'ledger.status':
      return { topic: 'telemetry', key: message.engine }
    case 'actor.status':
      return { topic: 'telemetry', key: message.actor }
  }
}
