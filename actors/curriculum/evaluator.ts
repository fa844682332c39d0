/**
 * Evaluator: turns the rollouts of an evaluation into its result.
 *
 * in   curriculum.advanced (eval), rollout.requested | finished, reward.assigned | failed, group.closed,
 *      weights.published, evaluation.completed
 * out  evaluation.completed
 * Invariant: pass@1 is the mean over problems of the mean reward of their judged samples (those with a reward). Every
 * requested sample counts as judged, as failed (also if it had not finished when the last group closed), or as unjudged
 * (finished without a reward). Failed and unjudged samples are left out of the means and counted, never taken as zero;
 * a problem without a judged sample is left out, too. pass@k is the mean over problems of `expectedBest`, an unbiased
 * estimate; pass@K is the mean over problems of the best judged sample. The standard error is that of the mean over
 * problems, from the sample variance (n − 1); with only one problem, that of the mean over its samples; with fewer than
 * two samples, null.
 */
import { OrderedMap } from 'immutable'
import { expectedBest, standardError } from '../../kernels'
import type { EvaluationCompleted } from '../../messages/facts'
import { type GroupId, groupOf, type PolicyVersion, policyVersion, type TrajectoryId } from '../../messages/ids'
import type { Effects } from '../../runtime/effects'
import type { Behaviour } from '../../runtime/host/behaviour'
import { errorRateMetric } from './errorRate'

interface Sample {
  readonly reward: number | null
  readonly failed: boolean
  /** True if the reward function gave no reward for this sample (`reward.failed`). */
  readonly unjudged: boolean
  readonly truncated: boolean
  readonly tokens: number
  readonly toolCalls: number
  readonly toolErrors: number
}

interface Evaluation {
  readonly groups: readonly GroupId[]
  /** Number of samples that were requested for each problem. */
  readonly groupSize: number
  readonly closed: ReadonlySet<GroupId>
  /** Persistent map: with thousands of problems, copying a plain map for each fact would be most of the work. */
  readonly samples: OrderedMap<TrajectoryId, Sample>
}

export interface EvaluatorState {
  readonly version: PolicyVersion
  readonly open: ReadonlyMap<number, Evaluation>
  readonly completed: ReadonlySet<number>
}

/** Number of the step after which the group's evaluation is made; undefined if the group belongs to no evaluation. */
const stepOf = (group: GroupId): number | undefined => {
  const match = /^e(\d+)\./.exec(group)
  return match === null ? undefined : Number(match[1])
}

const empty: Evaluation = { groups: [], groupSize: 0, closed: new Set(), samples: OrderedMap() }

/**
 * Makes the evaluator. `positiveAbove`: reward above which a judged sample is a positive; default 0. The result reports
 * the tool error rate of the positives besides that of all judged samples.
 */
export function evaluator({ positiveAbove = 0 } = {}): Behaviour<EvaluatorState> {
  const change = (state: EvaluatorState, step: number | undefined, with_: (e: Evaluation) => Evaluation) => {
    if (step === undefined || state.completed.has(step)) return state
    const before = state.open.get(step) ?? empty
    const after = with_(before)
    return after === before ? state : { ...state, open: new Map(state.open).set(step, after) }
  }

  function completedOf(state: EvaluatorState, fx: Effects): EvaluationCompleted[] {
    const results: EvaluationCompleted[] = []
    for (const [step, evaluation] of state.open) {
      if (evaluation.groups.length === 0 || evaluation.closed.size < evaluation.groups.length) continue
      results.push({
        type: 'evaluation.completed',
        at: fx.now(),
        step,
        version: state.version,
        ...resultOf(evaluation, positiveAbove),
      })
    }
    return results
  }

  return {
    name: 'evaluator',
    initial: () => ({ version: policyVersion(0), open: new Map(), completed: new Set() }),
    evolve(state, fact) {
      switch (fact.type) {
        case 'weights.published':
          return { ...state, version: fact.version }
        case 'curriculum.advanced':
          if (fact.purpose !== 'eval') return state
          return change(state, fact.step, e => ({ ...e, groups: fact.groups }))
        case 'rollout.requested':
          return change(state, stepOf(fact.group), e =>
            e.groupSize === fact.groupSize ? e : { ...e, groupSize: fact.groupSize },
          )
        case 'rollout.finished':
          return change(state, stepOf(groupOf(fact.trajectory)), e =>
            e.samples.has(fact.trajectory)
              ? e
              : {
                  ...e,
                  samples: e.samples.set(fact.trajectory, {
                    reward: null,
                    failed: fact.outcome === 'failed',
                    unjudged: false,
                    truncated: fact.outcome === 'truncated',
                    tokens: fact.sampledTokens,
                    toolCalls: fact.toolCalls,
                    toolErrors: fact.toolErrors,
                  }),
                },
          )
        case 'reward.assigned':
          return change(state, stepOf(groupOf(fact.trajectory)), e => {
            const sample = e.samples.get(fact.trajectory)
            if (sample === undefined || sample.reward !== null || sample.unjudged) return e
            return { ...e, samples: e.samples.set(fact.trajectory, { ...sample, reward: fact.reward }) }
          })
        case 'reward.failed':
          return change(state, stepOf(groupOf(fact.trajectory)), e => {
            const sample = e.samples.get(fact.trajectory)
            if (sample === undefined || sample.reward !== null || sample.failed || sample.unjudged) return e
            return { ...e, samples: e.samples.set(fact.trajectory, { ...sample, unjudged: true }) }
          })
        case 'group.closed':
          return change(state, stepOf(fact.group), e =>
            e.closed.has(fact.group) ? e : { ...e, closed: new Set(e.closed).add(fact.group) },
          )
        case 'evaluation.completed': {
          const open = new Map(state.open)
          open.delete(fact.step)
          return { ...state, open, completed: new Set(state.completed).add(fact.step) }
        }
        default:
          return state
      }
    },
    pending: (state, fx) => ({ facts: completedOf(state, fx), commands: [] }),
  }
}

const mean = (values: readonly number[]) => values.reduce((sum, v) => sum + v, 0) / Math.max(1, values.length)

function resultOf(
  evaluation: Evaluation,
  positiveAbove: number,
): Omit<EvaluationCompleted, 'type' | 'at' | 'step' | 'version'> {
  const byProblem = new Map<GroupId, number[]>()
  const judged = [...evaluation.samples].filter(([, s]) => s.reward !== null)
  for (const [trajectory, sample] of judged) {
    const group = groupOf(trajectory)
    byProblem.set(group, [...(byProblem.get(group) ?? []), sample.reward!])
  }
  const perProblem = [...byProblem.values()].map(mean)
  const passAt1 = mean(perProblem)
  const n = perProblem.length
  const samples = judged.map(([, s]) => s)
  const calls = samples.reduce((sum, s) => sum + s.toolCalls, 0)
  const positives = samples.filter(s => s.reward! > positiveAbove)
  const ended = [...evaluation.samples.values()]
  const asked = { problems: evaluation.groups.length, samples: evaluation.groupSize }
  const cutOff = Math.max(0, asked.problems * asked.samples - ended.length)
  return {
    name: 'held-out',
    passAt1,
    standardError: standardError(n === 1 ? [...byProblem.values()][0]! : perProblem),
    n,
    samples: Math.max(0, ...[...byProblem.values()].map(v => v.length)),
    metrics: {
      ...passAtPowersOfTwo([...byProblem.values()]),
      passAtK: mean([...byProblem.values()].map(rewards => Math.max(...rewards))),
      meanTokens: mean(samples.map(s => s.tokens)),
      toolCalls: calls,
      ...errorRateMetric('toolErrorRate', samples),
      ...errorRateMetric('toolErrorRateInPositives', positives),
      truncatedShare: mean(samples.map(s => (s.truncated ? 1 : 0))),
      failed: ended.filter(s => s.failed).length + cutOff,
      unjudged: ended.filter(s => !s.failed && s.reward === null).length,
    },
    asked,
  }
}

/**
 * Returns pass@k as metrics `passAt2`, `passAt4`, …: for each power of two from 2 to 65,536 that is below the smallest
 * number of judged samples of any of `problems`. `problems`: for each problem the rewards of its judged samples.
 */
function passAtPowersOfTwo(problems: readonly (readonly number[])[]): Record<string, number> {
  const fewest = Math.min(...problems.map(rewards => rewards.length))
  const powers = Array.from({ length: 16 }, (_, i) => 2 ** (i + 1)).filter(k => problems.length > 0 && k < fewest)
  return Object.fromEntries(powers.map(k => [`passAt${k}`, mean(problems.map(rewards => expectedBest(rewards, k)))]))
}
