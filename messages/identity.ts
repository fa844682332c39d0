/**
 * Which fact a fact is, and what of a message does not depend on the clock.
 *
 * in   facts of one or of several runs          out  names that repeat when the fact does; messages that can be compared
 * Invariant: two facts with one key are one fact, delivered or written twice. Epochs are not part of a key: a decision
 * that a new owner takes again is the same decision.
 */
import type { Fact } from './facts'
import type { Message } from './topics'

/**
 * The derived id of a fact: `group/member#turn#kind#call`, less what a fact of its kind does not have. Facts that may
 * rightly happen again (a run resumes twice, an engine comes back) carry their time; they alone differ between two
 * deterministic runs.
 */
export function factKey(fact: Fact): string {
  switch (fact.type) {
    case 'partition.claimed':
    case 'scheduler.claimed':
    case 'curriculum.claimed':
      return `partition-${fact.partition}#${fact.type}#${fact.owner}`
    case 'rollout.requested':
    case 'rollout.finished':
      return `${fact.trajectory}#${fact.type}`
    case 'turn.asked':
    case 'turn.completed':
    case 'turn.interrupted':
      return `${fact.trajectory}#${fact.turn}#${fact.type}#${fact.attempt}`
    case 'tool.asked':
    case 'tool.completed':
      return `${fact.trajectory}#${fact.turn}#${fact.type}#${fact.call}#${fact.attempt}`
    case 'context.appended':
      return `${fact.trajectory}#${fact.turn}#${fact.type}`
    case 'reward.assigned':
    case 'reward.failed':
      return `${fact.trajectory}#${fact.type}#${fact.attempt}`
    case 'group.closed':
    case 'group.selected':
    case 'group.rejected':
      return `${fact.group}#${fact.type}`
    case 'learner.claimed':
    case 'draws.claimed':
      return `learner#${fact.type}#${fact.owner}`
    case 'step.started':
    case 'step.completed':
    case 'step.rejected':
      return `step-${fact.step}#${fact.type}`
    case 'weights.published':
      return `version-${fact.version}#${fact.type}`
    case 'checkpoint.saved':
      return `checkpoint-${fact.name}#${fact.type}`
    case 'stage.changed':
      return `step-${fact.step}#${fact.type}#${fact.stage}`
    case 'run.started':
      return `run#${fact.type}`
    case 'run.resumed':
    case 'run.finished':
      return `run#${fact.type}#${fact.at}`
    case 'engine.joined':
    case 'engine.left':
      return `${fact.engine}#${fact.type}#${fact.at}`
    case 'weights.applied':
      return `${fact.engine}#${fact.type}#${fact.version}#${fact.at}`
    case 'evaluation.completed':
      return `version-${fact.version}#${fact.type}#${fact.name}#${fact.step}`
    case 'curriculum.advanced':
      return `step-${fact.step}#${fact.type}#${fact.purpose}#${fact.order}`
    case 'tasks.measured':
      return `stage-${fact.index}#${fact.type}#${fact.from}`
    case 'step.tallied':
      return `step-${fact.step}#${fact.type}`
    case 'trajectory.forked':
      return `${fact.child}#${fact.type}`
    case 'record.refused':
      return `${fact.origin}#${fact.type}`
    case 'alarm.raised':
      return `${fact.alarm}#${fact.type}#${fact.at}`
  }
}

/** Measured times, by field, and offsets, which depend on them. `timeoutMs` and `deadlineMs` are settings and stay. */
const timed = new Set(['at', 'timing', 'wallMs', 'cpuMs', 'busyMs', 'begins', 'learnerEpoch'])
/** Metrics of a step, an evaluation or a run's summary that were read off a clock. */
const timedMetric = /(Ms|[sS]econds|PerSecond)$/

/** The message without what a clock decided, for comparing two deterministic runs. The rest is shared, not copied. */
export function stripTimes(message: Message): Readonly<Record<string, unknown>> {
  const rest = Object.entries(message).filter(([name]) => !timed.has(name))
  return Object.fromEntries(
    rest.map(([name, value]) => [name, name === 'metrics' || name === 'summary' ? withoutTimes(value) : value]),
  )
}

function withoutTimes(values: unknown): unknown {
  if (typeof values !== 'object' || values === null || Array.isArray(values)) return values
  const kept = Object.entries(values).filter(([name]) => !timedMetric.test(name))
  return Object.fromEntries(kept.map(([name, value]) => [name, withoutTimes(value)]))
}
