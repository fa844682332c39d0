/**
 * Identity of facts, and comparison of messages between runs.
 *
 * in   facts of one or several runs
 * out  a derived key for each fact; messages without their measured times; decisions without the fields that earlier
 *      versions of the code did not write
 * Invariant: two facts with the same key are one fact that was delivered or written twice. An epoch is not part of a
 * key: if a new owner takes a decision again, it is the same decision.
 */
import type { Fact } from './facts'
import type { Message } from './topics'

/**
 * Returns the derived key of a fact. A fact about a rollout has `group/member#turn#type#call#attempt`, without the
 * parts that its type does not have (a gateway call has `group/member#call#type#attempt`); the key of any other fact
 * begins with its group, step, engine, partition, …. The key of a fact that can happen more than once (a run resumes
 * twice, an engine joins again) contains its time, and the key of a claim (of a role or a partition by a process) the
 * process's name; only these keys differ between two deterministic runs.
 */
export function factKey(fact: Fact): string {
  switch (fact.type) {
    case 'partition.claimed':
    case 'scheduler.claimed':
    case 'curriculum.claimed':
      return `partition-${fact.partition}#${fact.type}#${fact.owner}`
    case 'rollout.requested':
    case 'rollout.started':
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
    case 'session.opened':
      return `${fact.trajectory}#${fact.type}#${fact.opening}`
    case 'call.started':
    case 'call.finished':
      return `${fact.trajectory}#${fact.call}#${fact.type}#${fact.attempt}`
    case 'call.delivered':
      return `${fact.trajectory}#${fact.call}#${fact.type}#${fact.at}`
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
    case 'checkpoint.removed':
      return `checkpoint-${fact.name}#${fact.type}`
    case 'stage.changed':
      return `step-${fact.step}#${fact.type}#${fact.stage}`
    case 'stage.progressed':
      return `${fact.stage}#${fact.type}#${fact.at}`
    case 'run.started':
      return `run#${fact.type}`
    case 'run.resumed':
    case 'run.finished':
      return `run#${fact.type}#${fact.at}`
    case 'engine.joined':
    case 'engine.left':
    case 'engine.slept':
    case 'engine.woke':
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
    case 'control.obeyed':
      return `${fact.id}#${fact.type}`
    case 'alarm.raised':
      return `${fact.alarm}#${fact.type}#${fact.at}`
  }
}

/**
 * Top-level fields with measured times, or with offsets, which depend on times. `timeoutMs` and `deadlineMs` are
 * settings.
 */
const measuredFields = new Set(['at', 'timing', 'wallMs', 'cpuMs', 'busyMs', 'begins', 'learnerEpoch', 'leftSeconds'])
/** Matches the names of metrics that were measured with a clock, in the fields `metrics` and `summary`. */
const measuredMetric = /(Ms|[sS]econds|PerSecond)$/

/** Returns a message without its measured times, to compare two deterministic runs. Other values are not copied. */
export function stripTimes(message: Message): Readonly<Record<string, unknown>> {
  const rest = Object.entries(message).filter(([name]) => !measuredFields.has(name))
  return Object.fromEntries(
    rest.map(([name, value]) => [name, name === 'metrics' || name === 'summary' ? withoutTimes(value) : value]),
  )
}

/** Fields that later versions of the code added to decisions, by the decision's type. */
const laterFields: Readonly<Partial<Record<Fact['type'], readonly string[]>>> = {
  'rollout.finished': ['responseTokens'],
}

/**
 * Returns a decision of this code without those `laterFields` that the recorded decision lacks because an earlier
 * version of the code wrote it, so that the two can be compared. Other values are not copied.
 */
export function asOfRecord<F extends Fact>(decision: F, recorded: Fact): F {
  const missing = (laterFields[decision.type] ?? []).filter(name => !(name in recorded))
  if (missing.length === 0) return decision
  return Object.fromEntries(Object.entries(decision).filter(([name]) => !missing.includes(name))) as unknown as F
}

function withoutTimes(values: unknown): unknown {
  if (typeof values !== 'object' || values === null || Array.isArray(values)) return values
  const kept = Object.entries(values).filter(([name]) => !measuredMetric.test(name))
  return Object.fromEntries(kept.map(([name, value]) => [name, withoutTimes(value)]))
}
