/**
 * Conclusions from a curriculum's state: whether the run or its stage is over, and which evaluation is due.
 *
 * in   the plan of the run; a curriculum state        out  answers about that state
 * Invariant: pure; it only reads the state.
 */
import type { GroupRejected, RunFinished } from '../../messages/facts'
import { isMeasured, problemsOf, type StagePlan, stageOver } from './stages'
import type { CurriculumState } from './state'

export interface OutlookPlan {
  readonly steps: number
  readonly groupsPerStep: number
  readonly refillShare: number
  readonly evaluation: { readonly problems: number; readonly every: number }
  /**
   * True if a learner trains on the steps. Otherwise a step is over when all of its groups are selected or rejected and
   * either `groupsPerStep` of them are selected or no more groups can be drawn for it.
   */
  readonly learns: boolean
  readonly stages?: readonly StagePlan[]
}

type Reason = GroupRejected['reason']

const meanings: Readonly<Record<Reason, string>> = {
  'equal-rewards': 'the same reward in every rollout',
  'too-few-rewarded': 'too few rollouts with a reward',
}

const noGroup = 'has no group to train on'

/**
 * Returns the override (`field=value`) without which a run that ended for this reason ends again when it is resumed: a
 * `selection.refillShare` that allows twice as many groups a step. Undefined if the reason calls for no override.
 */
export const neededToResume = (reason: string, refillShare: number): string | undefined =>
  reason.includes(noGroup) ? `selection.refillShare=${2 * refillShare + 1}` : undefined

export function curriculumOutlook(plan: OutlookPlan) {
  const { stages = [] } = plan
  /** Upper bound on the groups drawn for a step, including those that replace rejected groups. */
  const largest = Math.floor(plan.groupsPerStep * (1 + plan.refillShare))

  /** Returns why the run has no further step; undefined while a step is left. */
  function overBecause(state: CurriculumState): { outcome: RunFinished['outcome']; reason: string } | undefined {
    if (state.done >= plan.steps) return { outcome: 'done', reason: 'all steps are done' }
    const dry = driedUp(state)
    if (dry !== undefined) return dry
    if (state.stages.index < 0 || state.stages.index < stages.length - 1) return undefined
    const reason = stageOver(stages, state.stages, state.done)
    return reason === undefined ? undefined : { outcome: 'done', reason: `the last stage is over: ${reason}` }
  }

  /**
   * Returns how and why a run that trains ends if every group of the next step was rejected, replacements included;
   * undefined otherwise. If each of these groups was rejected for equal rewards and a step is done already, the run
   * stops, after a final evaluation if the recipe evaluates; in every other case it fails, without one.
   */
  function driedUp(state: CurriculumState): { outcome: 'failed' | 'stopped'; reason: string } | undefined {
    const drawn = state.drawn.get(state.done + 1)
    if (!plan.learns || drawn === undefined) return undefined
    if (drawn.groups.length < largest || drawn.rejected.size < drawn.groups.length) return undefined
    const why = Object.entries(drawn.reasons).map(
      ([reason, n]) => `${n} ${n === 1 ? 'has' : 'have'} ${meanings[reason as Reason]} (${reason})`,
    )
    return {
      outcome: state.done > 0 && why.length === 1 && 'equal-rewards' in drawn.reasons ? 'stopped' : 'failed',
      reason: `step ${state.done + 1} ${noGroup}: of ${drawn.groups.length} groups, ${why.join(', ')}`,
    }
  }

  const evaluatesAfter = (state: CurriculumState, step: number): boolean => {
    if (plan.evaluation.problems === 0) return false
    if (step === 0 || step === plan.steps) return true
    if (plan.evaluation.every > 0 && step % plan.evaluation.every === 0) return true
    const end = step === state.done ? overBecause(state) : undefined
    return end !== undefined && end.outcome !== 'failed'
  }

  /**
   * True if the current stage is over and another stage follows; also before the first stage, if the recipe has stages.
   * The following stage begins once the steps that have groups are done.
   */
  const isStageOver = (state: CurriculumState): boolean =>
    state.stages.index < stages.length - 1 && stageOver(stages, state.stages, state.done) !== undefined
  const isBetweenSteps = (state: CurriculumState) =>
    state.asked.size === 0 && [...state.drawn.keys()].every(step => step <= state.done)

  /** Returns the step after which the oldest due evaluation without a result is made; undefined if there is none. */
  function openEvaluation(state: CurriculumState): number | undefined {
    for (let step = 0; step <= state.done; step++) {
      if (evaluatesAfter(state, step) && state.evaluations.get(step) !== 'completed') return step
    }
    return undefined
  }

  /**
   * True if the current stage is over and the next one cannot begin, because its measurement has ended and left it no
   * problem to train on.
   */
  function isEmptyStage(state: CurriculumState): boolean {
    const next = stages[state.stages.index + 1]
    if (next?.problems === undefined || !isStageOver(state) || !isMeasured(stages, state.stages)) return false
    return problemsOf(stages, state.stages, state.stages.index + 1)?.length === 0
  }

  return { largest, overBecause, openEvaluation, isStageOver, isBetweenSteps, isEmptyStage }
}
