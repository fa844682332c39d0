/**
 * Curriculum: decides which groups of rollouts make up a step or an evaluation, and when the run is over.
 *
 * in   rollout.requested, weights.published, step.completed | rejected, group.selected | rejected,
 *      evaluation.completed, curriculum.advanced, run.*, control.obeyed; what stages.ts, tally.ts and alarms.ts read
 * out  requests to render prompts (answered by rollout.requested and curriculum.advanced), stage.changed,
 *      tasks.measured, step.tallied, alarm.raised, run.finished
 * Invariant: a draw (a batch of new groups) names its groups, first task and first start order, so a repeated draw asks
 * for the same rollouts. One group replaces each rejected one, up to `refillShare` × `groupsPerStep` groups a step.
 * Groups of step n are requested only while n is at most `maxStaleness` above the number of the learner's next step.
 * A draw that a crash cut off, so that the log holds only some of its requests, is repeated before any other draw, with
 * the same tasks and start orders.
 */

import type { Alarm } from '../../config'
import type { Fact, RunFinished } from '../../messages/facts'
import { type GroupId, groupId, type PolicyVersion, policyVersion, type RunId } from '../../messages/ids'
import type { Effects } from '../../runtime/effects'
import type { Behaviour } from '../../runtime/host/behaviour'
import { dueAlarms, watch } from './alarms'
import { curriculumOutlook, type OutlookPlan } from './outlook'
import {
  evolveStages,
  finishedMeasures,
  isMeasured,
  nextMeasure,
  problemsOf,
  type StagesState,
  stageOver,
} from './stages'
import {
  advance,
  ask,
  type CurriculumState,
  decided,
  emptyCurriculum,
  isDrained,
  noneDrawn,
  obey,
  over,
  type PartDraw,
  partDraw,
  rejectedInARow,
} from './state'
import { nextTally, tally } from './tally'

export interface CurriculumPlan extends OutlookPlan {
  readonly run: RunId
  readonly maxStaleness: number
  /**
   * Number of rejected optimizer steps in a row (non-finite update, batch that cannot be trained on) at which the run
   * fails.
   */
  readonly maxRejectedSteps: number
  readonly alarms?: readonly Alarm[]
  /** Reward above which a rollout counts as having solved its problem. Default: 0. */
  readonly positiveAbove?: number
}

/** Asks for the prompts of new groups; answered by their rollout.requested facts and one curriculum.advanced. */
export interface DrawRequest {
  readonly kind: 'draw'
  /**
   * Purpose of the draw. train: for an optimizer step. eval: for an evaluation. measure: to count how often the policy
   * solves each problem before a stage begins.
   */
  readonly purpose: 'train' | 'eval' | 'measure'
  readonly step: number
  readonly groups: readonly GroupId[]
  /**
   * Index, among the source's training tasks, of the first task to take; for an evaluation, among its evaluation tasks;
   * with `tasks`, a position in that list, modulo its length. Each further group takes the next task.
   */
  readonly cursor: number
  readonly order: number
  readonly minVersion: PolicyVersion
  /** Index of the recipe's stage whose rollout limits apply. */
  readonly stage?: number
  /** Indices of the problems that the stage trains on; the cursor cycles through them. Absent: all problems. */
  readonly tasks?: readonly number[]
  /**
   * Positions in the topic `trajectories` of the first request of each group that an earlier, interrupted attempt at
   * this draw wrote. Absent: there was no such attempt.
   */
  readonly began?: readonly { readonly partition: number; readonly offset: number }[]
}

const pad = (n: number) => String(n).padStart(4, '0')
const evaluationGroups = (step: number, problems: number): readonly GroupId[] =>
  Array.from({ length: problems }, (_, k) => groupId(`e${pad(step)}.${pad(k)}`))

export function curriculum(plan: CurriculumPlan): Behaviour<CurriculumState, never, DrawRequest> {
  const { largest, overBecause, openEvaluation, isStageOver, isBetweenSteps, isEmptyStage } = curriculumOutlook(plan)
  const { stages = [], alarms = [], positiveAbove = 0 } = plan
  const observes = observesSteps(plan)
  /** Cache of the problems that the current stage trains on; valid for the stages' state that is stored with it. */
  let problems: { readonly state: StagesState; readonly tasks: readonly number[] | null } | undefined
  const tasksOf = (state: StagesState): readonly number[] | null => {
    if (problems?.state !== state) problems = { state, tasks: problemsOf(stages, state, state.index) }
    return problems.tasks
  }

  function drawMore(state: CurriculumState): DrawRequest[] {
    if (state.version === null || state.finished || state.paused || state.ends?.how === 'abort') return []
    const minVersion = policyVersion(Math.max(0, state.version - plan.maxStaleness))
    const part = partDraw(state)
    if (part !== undefined) return [drawAgain(state, part, state.version, minVersion)]
    const evaluation = openEvaluation(state)
    if (evaluation !== undefined) {
      if (state.evaluations.has(evaluation)) return []
      if (state.ends !== null) return drawFor(state, minVersion)
      const groups = evaluationGroups(evaluation, plan.evaluation.problems)
      const { version, order } = state
      return [{ kind: 'draw', purpose: 'eval', step: evaluation, groups, cursor: 0, order, minVersion: version }]
    }
    if (observes && state.tally.told < state.done) return []
    if (overBecause(state) !== undefined) return []
    if (isStageOver(state) && isBetweenSteps(state) && state.ends === null) return measureMore(state)
    return drawFor(state, minVersion)
  }

  /**
   * Requests further groups for one step: the first step that has fewer than `groupsPerStep` groups which are not
   * rejected, and fewer than `largest` groups in all. The draw fills the step until it reaches one of the two numbers.
   * Returns an empty list if no step up to the last allowed one lacks groups.
   */
  function drawFor(state: CurriculumState, minVersion: PolicyVersion): DrawRequest[] {
    const last = Math.min(lastStep(state), state.done + 1 + plan.maxStaleness)
    for (let step = state.done + 1; step <= last; step++) {
      const drawn = state.drawn.get(step) ?? noneDrawn
      const missing = plan.groupsPerStep - (drawn.groups.length - drawn.rejected.size)
      const wanted = Math.min(missing, largest - drawn.groups.length)
      if (wanted <= 0) continue
      const first = drawn.groups.length
      const groups = Array.from({ length: wanted }, (_, k) => groupId(`s${pad(step)}.${pad(first + k)}`))
      const { cursor, order } = state
      return [{ kind: 'draw', purpose: 'train', step, groups, cursor, order, minVersion, ...stageOf(state) }]
    }
    return []
  }

  /**
   * Repeats a draw that the log holds only in part, with the tasks that the first attempt used. Requests every rollout
   * of its groups up to the last group in the log, also those that are in the log already; a later draw requests the
   * remaining groups. An evaluation is one draw, so all of its groups are requested here.
   */
  function drawAgain(
    state: CurriculumState,
    { purpose, number, first, groups, began }: PartDraw,
    version: PolicyVersion,
    minVersion: PolicyVersion,
  ): DrawRequest {
    const common = { kind: 'draw', purpose, groups, order: state.order, began } as const
    switch (purpose) {
      case 'train':
        return { ...common, step: number, cursor: state.cursor, minVersion, ...stageOf(state) }
      case 'eval': {
        const all = evaluationGroups(number, Math.max(plan.evaluation.problems, first + groups.length))
        return { ...common, groups: all, step: number, cursor: 0, minVersion: version }
      }
      case 'measure':
        return { ...common, step: state.done, cursor: first, minVersion: version, stage: number }
    }
  }

  /**
   * Returns the number of the last optimizer step that may get new groups: the run's last step, or the current stage's
   * last step if that comes earlier. Once the stage is over or a person ordered a drain: the last step that has groups.
   */
  function lastStep(state: CurriculumState): number {
    if (isStageOver(state) || state.ends !== null) return Math.max(state.done, ...state.drawn.keys())
    const steps = stages[state.stages.index]?.until?.steps
    return steps === undefined ? plan.steps : Math.min(plan.steps, state.stages.began + steps)
  }

  function stageOf(state: CurriculumState): Pick<DrawRequest, 'stage' | 'tasks'> {
    if (state.stages.index < 0) return {}
    const tasks = tasksOf(state.stages)
    return { stage: state.stages.index, ...(tasks === null ? {} : { tasks }) }
  }

  function measureMore(state: CurriculumState): DrawRequest[] {
    const next = nextMeasure(stages, state.stages, plan.groupsPerStep)
    if (next === undefined || state.version === null) return []
    const { from: cursor, groups } = next
    const common = { step: state.done, groups, cursor, order: state.order, minVersion: state.version }
    return [{ kind: 'draw', purpose: 'measure', ...common, stage: state.stages.index + 1 }]
  }

  /**
   * Returns the facts that follow from the state and are not in the log yet: the tally of the oldest untallied step,
   * alarms that are due, results of measurements, and the change to the next stage.
   */
  function noticed(state: CurriculumState, fx: Effects): Fact[] {
    const at = fx.now()
    const facts: Fact[] = []
    const told = observes ? nextTally(state.tally, state.done, positiveAbove) : undefined
    if (told !== undefined) facts.push({ type: 'step.tallied', at, ...told })
    for (const alarm of dueAlarms(alarms, state.alarms, plan.run)) facts.push({ type: 'alarm.raised', at, ...alarm })
    const index = state.stages.index + 1
    const next = stages[index]
    if (next === undefined || state.finished) return facts
    for (const { from, solved } of finishedMeasures(state.stages)) {
      facts.push({
        ...{ type: 'tasks.measured', at, stage: next.name, index, from, samples: next.problems?.samples ?? 0, solved },
      })
    }
    const reason = stageOver(stages, state.stages, state.done)
    const isSettled = !observes || state.tally.told >= state.done
    if (reason === undefined || !isSettled || !isBetweenSteps(state) || state.version === null) return facts
    if (overBecause(state) !== undefined || openEvaluation(state) !== undefined) return facts
    if (!isMeasured(stages, state.stages)) return facts
    const kept = problemsOf(stages, state.stages, index)
    if (kept?.length === 0) return facts
    const chosen = kept === null ? '' : `; ${kept.length} of ${next.problems!.count} problems kept`
    const { name: stage, resetOptimizer, updateReference } = next
    facts.push({
      ...{ type: 'stage.changed', at, stage, step: state.done, reason: `${reason}${chosen}`, index },
      ...{ resetOptimizer, updateReference },
    })
    return facts
  }

  function finish(state: CurriculumState, fx: Effects): Fact[] {
    if (state.finished) return []
    const ended = (outcome: RunFinished['outcome'], reason: string): Fact[] => {
      const alarm: Fact[] =
        outcome === 'failed' ? [{ type: 'alarm.raised', at: fx.now(), alarm: 'run-failed', message: reason }] : []
      return [
        ...alarm,
        { type: 'run.finished', at: fx.now(), run: plan.run, outcome, reason, steps: state.done, summary: {} },
      ]
    }
    if (state.alarms.stopped !== null) return ended('stopped', state.alarms.stopped)
    if (state.ends?.how === 'abort') return ended('stopped', because('aborted', state.ends.reason))
    if (state.ends?.how === 'drain' && isDrained(state)) return ended('stopped', because('drained', state.ends.reason))
    if (isEmptyStage(state)) {
      const { name, problems } = stages[state.stages.index + 1]!
      const { samples, minSolved, maxSolved = samples - 1, count } = problems!
      return ended(
        'failed',
        `stage '${name}' has no problem to train on: of ${count} problems, none was solved in ${minSolved} to ${maxSolved} of ${samples} rollouts`,
      )
    }
    const rejected = rejectedInARow(state)
    if (rejected.length >= plan.maxRejectedSteps)
      return ended('failed', `${rejected.length} steps in a row were rejected, the last one: ${rejected.at(-1)}`)
    // A run with zero steps ends only when the first weights are published, which its cold start (SFT) trains.
    const end = state.version === null ? undefined : overBecause(state)
    const isTold = !observes || state.tally.told >= state.done
    return end !== undefined && isTold && openEvaluation(state) === undefined ? ended(end.outcome, end.reason) : []
  }

  /**
   * In a run without training: ends the next step once all of its groups are decided and either `groupsPerStep` of them
   * are selected or no more groups can be drawn for it.
   */
  function settle(state: CurriculumState): CurriculumState {
    const drawn = state.drawn.get(state.done + 1)
    if (plan.learns || drawn === undefined) return state
    const decided = drawn.selected.size + drawn.rejected.size
    const enough = drawn.selected.size >= plan.groupsPerStep || drawn.groups.length >= largest
    return enough && decided === drawn.groups.length ? over(state, state.done + 1, []) : state
  }

  return {
    name: 'curriculum',
    initial: () => emptyCurriculum,
    evolve(before, fact, origin) {
      const state = observed(before, fact)
      switch (fact.type) {
        case 'rollout.requested':
          return ask(state, fact, origin)
        case 'weights.published':
          return { ...state, version: fact.version }
        case 'curriculum.advanced':
          return settle(advance(state, fact))
        case 'group.selected':
          return settle(decided(state, fact.step, fact.group, 'selected', ''))
        case 'group.rejected':
          return settle(decided(state, fact.step, fact.group, 'rejected', fact.reason))
        case 'step.completed':
          return fact.step <= state.done ? state : over(state, fact.step, [])
        case 'step.rejected':
          return fact.step <= state.done ? state : over(state, fact.step, [...state.rejections, fact.reason])
        case 'evaluation.completed':
          return { ...state, evaluations: new Map(state.evaluations).set(fact.step, 'completed') }
        case 'run.finished':
          return { ...state, finished: true, endedAfter: fact.steps }
        case 'run.resumed':
          return { ...state, finished: false, ends: null }
        case 'control.obeyed':
          return obey(state, fact)
        default:
          return state
      }
    },
    pending: (state, fx) => ({
      facts: [...noticed(state, fx), ...finish(state, fx)],
      commands: [],
      requests: drawMore(state),
    }),
  }

  function observed(state: CurriculumState, fact: Fact): CurriculumState {
    const after = {
      stages: stages.length === 0 ? state.stages : evolveStages(positiveAbove, state.stages, fact),
      tally: observes ? tally(state.tally, fact) : state.tally,
      alarms: alarms.length === 0 ? state.alarms : watch(alarms, state.alarms, fact),
    }
    const same = after.stages === state.stages && after.tally === state.tally && after.alarms === state.alarms
    return same ? state : { ...state, ...after }
  }
}

const because = (what: string, reason: string): string => (reason === '' ? what : `${what}: ${reason}`)

/** True if the plan's stages or alarms depend on the tallied metrics of steps. */
export const observesSteps = ({ stages = [], alarms = [] }: Pick<CurriculumPlan, 'stages' | 'alarms'>): boolean =>
  alarms.length > 0 || stages.some(stage => stage.until?.metric !== undefined)
