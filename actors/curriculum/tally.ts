/**
 * Tallies of steps: computes the metrics of each step from its rollouts, for stages and alarm rules.
 *
 * in   curriculum.advanced, rollout.requested | finished, turn.asked | completed | interrupted, reward.assigned,
 *      group.selected | rejected, step.completed | rejected | tallied, evaluation.completed, record.refused
 * out  the metrics of a step that is over
 * Invariant: pure. A step is tallied once it is over and all of its groups are selected or rejected, so the result does
 * not depend on the order in which topics are read. Each rollout counts once.
 */
import { Map as Persistent } from 'immutable'
import { checkByArithmetic } from '../../kernels'
import type { Fact, Metrics, RewardAssigned } from '../../messages/facts'
import { type GroupId, groupOf, type TrajectoryId } from '../../messages/ids'
import { errorRateMetric } from './errorRate'
import { trendSteps, trends } from './trends'
import { addTurn, endTrajectory, noTurns, type TurnSums, turnMetrics } from './turnSums'

interface Rollout {
  readonly tokens: number
  readonly turns: number
  readonly toolCalls: number
  readonly toolErrors: number
  readonly outcome: 'answered' | 'truncated' | 'failed'
  readonly reward: number | null
}

interface StepTally {
  readonly groups: ReadonlySet<GroupId>
  readonly rejected: ReadonlySet<GroupId>
  /** Number of rejected groups whose rewards were all equal. */
  readonly equal: number
  readonly selected: ReadonlySet<GroupId>
  /** Finished rollouts of the step. Persistent map: there are tens of thousands, and each fact changes one entry. */
  readonly rollouts: Persistent<TrajectoryId, Rollout>
  readonly turns: TurnSums
  readonly truths: Persistent<GroupId, string>
  /**
   * Check of the mathematics grader by plain arithmetic. settled: number of graded answers that arithmetic can judge,
   * too. differ: number of those on which arithmetic contradicts the grader.
   */
  readonly opinions: { readonly settled: number; readonly differ: number }
  /** Metrics of the step's optimizer update, from `step.completed` or `step.rejected`; empty before. */
  readonly update: Metrics
  /** Policy version before the step's optimizer update; null before `step.completed`, and for a rejected step. */
  readonly version: number | null
  /** Time of the step's `step.completed` or `step.rejected`; null before it. */
  readonly endedAt: number | null
}

export interface TallyState {
  /** Number of the newest step that was tallied; 0 before the first. */
  readonly told: number
  /** Metrics of the latest tallied steps, at most `trendSteps`, oldest first. */
  readonly history: readonly Metrics[]
  /**
   * Time at which each refused record was written, by the record's log position. A record is refused if it cannot be
   * decoded or crashed its receiver three times.
   */
  readonly refused: Persistent<string, number>
  /** Number of refused records that the tallies of earlier steps have counted. */
  readonly refusedTold: number
  /** Scores of the evaluations with at least one judged sample, in the order in which they were completed. */
  readonly evaluations: readonly { readonly step: number; readonly passAt1: number }[]
  readonly steps: ReadonlyMap<number, StepTally>
}

const none: StepTally = {
  groups: new Set(),
  rejected: new Set(),
  equal: 0,
  selected: new Set(),
  rollouts: Persistent(),
  turns: noTurns,
  truths: Persistent(),
  opinions: { settled: 0, differ: 0 },
  update: {},
  version: null,
  endedAt: null,
}

export const noTallies: TallyState = {
  told: 0,
  history: [],
  refused: Persistent(),
  refusedTold: 0,
  evaluations: [],
  steps: new Map(),
}

/** Upper bound on the refused records of a run that are counted; further ones are ignored. */
const mostRefused = 10_000

/** Number of the training step that a group was drawn for; undefined for any other group. */
const stepOf = (group: GroupId): number | undefined => {
  const found = /^s(\d+)\./.exec(group)
  return found === null ? undefined : Number(found[1])
}

export function tally(state: TallyState, fact: Fact): TallyState {
  switch (fact.type) {
    case 'curriculum.advanced':
      if (fact.purpose !== 'train') return state
      return change(state, fact.step, t => ({ ...t, groups: new Set([...t.groups, ...fact.groups]) }))
    case 'rollout.requested':
      return change(state, stepOf(fact.group), t =>
        t.truths.has(fact.group) ? t : { ...t, truths: t.truths.set(fact.group, fact.task.truth) },
      )
    case 'turn.asked':
    case 'turn.completed':
    case 'turn.interrupted':
      return change(state, stepOf(groupOf(fact.trajectory)), t => {
        const turns = addTurn(t.turns, fact)
        return turns === t.turns ? t : { ...t, turns }
      })
    case 'rollout.finished': {
      const { trajectory, sampledTokens: tokens, turns, toolCalls, toolErrors, outcome } = fact
      return change(state, stepOf(groupOf(trajectory)), t =>
        t.rollouts.has(trajectory)
          ? t
          : {
              ...t,
              turns: endTrajectory(t.turns, trajectory),
              rollouts: t.rollouts.set(trajectory, { tokens, turns, toolCalls, toolErrors, outcome, reward: null }),
            },
      )
    }
    case 'reward.assigned':
      return change(state, stepOf(groupOf(fact.trajectory)), t => {
        const rollout = t.rollouts.get(fact.trajectory)
        if (rollout === undefined || rollout.reward !== null) return t
        const rollouts = t.rollouts.set(fact.trajectory, { ...rollout, reward: fact.reward })
        return { ...t, rollouts, opinions: withOpinion(t, fact) }
      })
    case 'group.selected':
      return change(state, fact.step, t => ({ ...t, selected: new Set(t.selected).add(fact.group) }))
    case 'group.rejected':
      return change(state, fact.step, t =>
        t.rejected.has(fact.group)
          ? t
          : {
              ...t,
              rejected: new Set(t.rejected).add(fact.group),
              equal: t.equal + (fact.reason === 'equal-rewards' ? 1 : 0),
            },
      )
    case 'step.completed':
      return change(state, fact.step, t => ({
        ...t,
        update: fact.metrics,
        version: fact.version - 1,
        endedAt: fact.at,
      }))
    case 'step.rejected':
      return change(state, fact.step, t => ({ ...t, update: fact.metrics, endedAt: fact.at }))
    case 'record.refused': {
      const { refused } = state
      if (refused.has(fact.origin) || refused.size >= mostRefused) return state
      return { ...state, refused: refused.set(fact.origin, fact.at) }
    }
    case 'evaluation.completed': {
      const { step, passAt1, n } = fact
      if (n === 0 || state.evaluations.some(one => one.step === step)) return state
      return { ...state, evaluations: [...state.evaluations, { step, passAt1 }] }
    }
    case 'step.tallied': {
      if (fact.step <= state.told) return state
      const steps = new Map([...state.steps].filter(([step]) => step > fact.step))
      const history = [...state.history, fact.metrics].slice(-trendSteps)
      const refusedTold = state.refusedTold + (fact.metrics.deadLetters ?? 0)
      return { ...state, told: fact.step, history, refusedTold, steps }
    }
    default:
      return state
  }
}

/**
 * Returns the metrics of the oldest untallied step; undefined if that step is after `done`, or if its groups are not
 * known yet or not all decided.
 */
export function nextTally(
  state: TallyState,
  done: number,
  positiveAbove: number,
): { step: number; metrics: Metrics } | undefined {
  const step = state.told + 1
  const found = state.steps.get(step)
  if (step > done || found === undefined || found.groups.size === 0) return undefined
  if (found.selected.size + found.rejected.size < found.groups.size) return undefined
  const { endedAt } = found
  const refused = endedAt === null ? state.refused.size : state.refused.count(at => at <= endedAt)
  const scores = state.evaluations.filter(one => one.step < step).map(({ passAt1 }) => passAt1)
  const evaluationDrop = scores.length < 2 ? {} : { evaluationDrop: Math.max(...scores) - scores.at(-1)! }
  const metrics = {
    ...metricsOf(found, positiveAbove),
    ...evaluationDrop,
    deadLetters: Math.max(0, refused - state.refusedTold),
  }
  return { step, metrics: { ...metrics, ...trends(state.history, metrics) } }
}

/**
 * Returns true if plain arithmetic finds the answer right, false if wrong; undefined if arithmetic cannot decide, or if
 * a grader other than the mathematics grader judged the answer.
 */
export const opinionOn = ({ answer, how }: RewardAssigned, truth: string): boolean | undefined =>
  how === 'integer' || how.startsWith('math-verify') ? checkByArithmetic(answer, truth) : undefined

function withOpinion({ opinions, truths }: StepTally, fact: RewardAssigned): StepTally['opinions'] {
  const truth = truths.get(groupOf(fact.trajectory))
  const second = truth === undefined ? undefined : opinionOn(fact, truth)
  if (second === undefined) return opinions
  const agrees = second ? fact.reward > 0 : fact.reward <= 0
  return { settled: opinions.settled + 1, differ: opinions.differ + (agrees ? 0 : 1) }
}

function metricsOf(
  { rollouts, groups, rejected, equal, turns, opinions, update, version }: StepTally,
  positiveAbove: number,
): Metrics {
  const all = [...rollouts.values()]
  const judged = all.filter(rollout => rollout.reward !== null)
  const positives = judged.filter(rollout => rollout.reward! > positiveAbove)
  const sum = (of: readonly Rollout[], number: (rollout: Rollout) => number) => of.reduce((n, r) => n + number(r), 0)
  const share = (part: number, whole: number) => (whole === 0 ? 0 : part / whole)
  return {
    ...update,
    ...(version === null ? {} : turnMetrics(turns, version)),
    passAt1: share(
      sum(judged, r => r.reward!),
      judged.length,
    ),
    ...errorRateMetric('toolErrorRate', judged),
    ...errorRateMetric('toolErrorRateInPositives', positives),
    truncatedShare: share(all.filter(r => r.outcome === 'truncated').length, all.length),
    failedShare: share(all.length - judged.length, all.length),
    rejectedShare: share(rejected.size, groups.size),
    equalShare: share(equal, groups.size),
    ...(opinions.settled === 0 ? {} : { disagreeShare: opinions.differ / opinions.settled }),
    meanTokens: share(
      sum(all, r => r.tokens),
      all.length,
    ),
    meanTurns: share(
      sum(all, r => r.turns),
      all.length,
    ),
    rollouts: all.length,
  }
}

function change(state: TallyState, step: number | undefined, to: (tally: StepTally) => StepTally): TallyState {
  if (step === undefined || step <= state.told) return state
  const before = state.steps.get(step) ?? none
  const after = to(before)
  return after === before ? state : { ...state, steps: new Map(state.steps).set(step, after) }
}
