/**
 * Stages: which stage a run is in, when the next one begins, and which problems belong to it.
 *
 * in   stage.changed, step.tallied, curriculum.advanced (measure), reward.assigned, group.closed, tasks.measured
 * out  the stage that is due; how often the policy solved the measured problems
 * Invariant: pure. A switch of stage follows only from facts, and topics may be read in any order, since folding
 * (applying facts to the state) decides nothing. A problem's count of solutions is the number of its rollouts that got
 * a reward above `positiveAbove` before their group closed. A rollout without a reward, such as a failed one, counts as
 * not solved.
 */
import { Map as Persistent } from 'immutable'
import type { Fact, Metrics } from '../../messages/facts'
import { type GroupId, groupId, groupOf, type TrajectoryId } from '../../messages/ids'
import { isBeyond } from './alarms'

interface MeasuredProblems {
  readonly samples: number
  readonly minSolved: number
  /** The stage keeps a problem only if at most this number of its samples solved it. Default: samples − 1. */
  readonly maxSolved?: number | undefined
  /** Number of problems that are measured before the stage begins. */
  readonly count: number
}

export interface StagePlan {
  readonly name: string
  readonly problems?: MeasuredProblems | undefined
  readonly until?:
    | {
        readonly steps?: number | undefined
        readonly metric?: string | undefined
        readonly above?: number | undefined
        readonly below?: number | undefined
        readonly for: number
      }
    | undefined
  readonly resetOptimizer: boolean
  readonly updateReference: boolean
}

interface Measured {
  readonly solvedBy: ReadonlySet<TrajectoryId>
  readonly closed: boolean
}

/** Measurement of one stage's problems: which were requested, and how often the policy solved each of them. */
interface Measuring {
  /** Number of problems whose rollouts were requested so far; they are requested in the order of the task source. */
  readonly asked: number
  /**
   * Draws (batches of groups) that measure problems and have no result yet: the groups of each draw, by the index of
   * the draw's first problem.
   */
  readonly draws: ReadonlyMap<number, readonly GroupId[]>
  /** Number of rollouts that solved each problem, by the problem's index; undefined while it is not measured. */
  readonly solved: readonly (number | undefined)[]
}

export interface StagesState {
  /** Index of the current stage; −1 before the first has begun. */
  readonly index: number
  /** Number of optimizer steps that were over when the current stage began. */
  readonly began: number
  readonly metrics: ReadonlyMap<number, Metrics>
  readonly measuring: ReadonlyMap<number, Measuring>
  /**
   * For each group that measures a problem of a later stage: the rollouts that solved it so far, and whether the group
   * is closed. Persistent map: a stage may measure every problem of a large set, and each fact changes one entry.
   */
  readonly groups: Persistent<GroupId, Measured>
}

export const noStages: StagesState = {
  ...{ index: -1, began: 0, metrics: new Map(), measuring: new Map(), groups: Persistent<GroupId, Measured>() },
}
const nothingMeasured: Measuring = { asked: 0, draws: new Map(), solved: [] }
const unmeasured: Measured = { solvedBy: new Set(), closed: false }

const pad = (n: number, width: number) => String(n).padStart(width, '0')
const measuredGroup = (stage: number, task: number): GroupId => groupId(`m${pad(stage, 2)}.${pad(task, 6)}`)
const stageOf = (group: GroupId): number | undefined => {
  const found = /^m(\d+)\.\d+$/.exec(group)
  return found === null ? undefined : Number(found[1])
}

export function evolveStages(positiveAbove: number, state: StagesState, fact: Fact): StagesState {
  switch (fact.type) {
    case 'stage.changed': {
      if (fact.index === undefined || fact.index <= state.index) return state
      const { index, step: began } = fact
      const groups = state.groups.filter((_, group) => stageOf(group)! > index)
      const measuring = new Map([...state.measuring].filter(([stage]) => stage >= index))
      return { ...state, index, began, groups, measuring }
    }
    case 'step.tallied':
      return { ...state, metrics: new Map(state.metrics).set(fact.step, fact.metrics) }
    case 'curriculum.advanced': {
      const stage = fact.purpose === 'measure' ? stageOf(fact.groups[0] ?? groupId('')) : undefined
      if (stage === undefined || stage <= state.index) return state
      const from = fact.cursor - fact.groups.length
      return measure(state, stage, m =>
        m.solved[from] !== undefined || m.draws.has(from)
          ? m
          : { ...m, asked: Math.max(m.asked, fact.cursor), draws: new Map(m.draws).set(from, fact.groups) },
      )
    }
    case 'reward.assigned': {
      if (!(fact.reward > positiveAbove)) return state
      return changeGroup(state, groupOf(fact.trajectory), m =>
        m.closed || m.solvedBy.has(fact.trajectory) ? m : { ...m, solvedBy: new Set(m.solvedBy).add(fact.trajectory) },
      )
    }
    case 'group.closed':
      return changeGroup(state, fact.group, m => (m.closed ? m : { ...m, closed: true }))
    case 'tasks.measured':
      if (fact.index < state.index) return state
      return measure(state, fact.index, m => {
        const solved = [...m.solved]
        for (const [k, n] of fact.solved.entries()) solved[fact.from + k] = n
        const draws = new Map(m.draws)
        draws.delete(fact.from)
        return { asked: Math.max(m.asked, fact.from + fact.solved.length), draws, solved }
      })
    default:
      return state
  }
}

/**
 * Returns why the current stage is over after `done` steps; undefined while it is not. Before the first stage of a
 * recipe with stages, the reason is that the run begins.
 */
export function stageOver(plans: readonly StagePlan[], state: StagesState, done: number): string | undefined {
  if (state.index < 0) return plans.length === 0 ? undefined : 'the run begins'
  const stage = plans[state.index]
  if (stage?.until === undefined) return undefined
  const { until, name } = stage
  const steps = done - state.began
  if (until.steps !== undefined && steps >= until.steps)
    return `${steps} ${steps === 1 ? 'step' : 'steps'} of '${name}'`
  if (until.metric === undefined) return undefined
  let held = 0
  for (let step = state.began + 1; step <= done; step++) {
    const value = state.metrics.get(step)?.[until.metric]
    if (value === undefined) continue
    held = isBeyond(value, until) ? held + 1 : 0
    // The condition was met for the required number of steps; later steps cannot undo that.
    if (held >= until.for) return `${until.metric} of '${name}' is ${Number(value.toPrecision(4))} at step ${step}`
  }
  return undefined
}

/**
 * Returns up to `size` further problems to measure for the next stage: the index of the first one (`from`), and a group
 * for each. Returns undefined if all are requested, or if two draws (batches of groups) have no result yet. Two draws
 * may be open, so that the second one runs while the last rollouts of the first one finish.
 */
export function nextMeasure(
  plans: readonly StagePlan[],
  state: StagesState,
  size: number,
): { readonly from: number; readonly groups: readonly GroupId[] } | undefined {
  const stage = state.index + 1
  const count = plans[stage]?.problems?.count ?? 0
  const { draws, asked: from } = state.measuring.get(stage) ?? nothingMeasured
  if (draws.size >= 2 || from >= count) return undefined
  const n = Math.min(size, count - from)
  return { from, groups: Array.from({ length: n }, (_, k) => measuredGroup(stage, from + k)) }
}

/**
 * Returns the results of the next stage's measuring draws whose groups are all closed: the index of the draw's first
 * problem (`from`), and for each problem the number of its rollouts that solved it.
 */
export function finishedMeasures({ measuring, groups, index }: StagesState): readonly {
  readonly from: number
  readonly solved: readonly number[]
}[] {
  return [...(measuring.get(index + 1)?.draws ?? [])].flatMap(([from, drawn]) => {
    const all = drawn.map(group => groups.get(group) ?? unmeasured)
    return all.every(({ closed }) => closed) ? [{ from, solved: all.map(({ solvedBy }) => solvedBy.size) }] : []
  })
}

/** True once all problems that the next stage measures have a result, also if it measures none. */
export function isMeasured(plans: readonly StagePlan[], { measuring, index }: StagesState): boolean {
  const count = plans[index + 1]?.problems?.count ?? 0
  const { solved } = measuring.get(index + 1) ?? nothingMeasured
  for (let task = 0; task < count; task++) if (solved[task] === undefined) return false
  return true
}

/**
 * Returns the indices of the problems that the stage trains on: the measured ones that the policy solved `minSolved` to
 * `maxSolved` times. Returns null if the stage trains on all problems and measures none.
 */
export function problemsOf(
  plans: readonly StagePlan[],
  { measuring }: StagesState,
  index: number,
): readonly number[] | null {
  const problems = plans[index]?.problems
  if (problems === undefined) return null
  const { samples, minSolved, maxSolved = samples - 1, count } = problems
  const { solved } = measuring.get(index) ?? nothingMeasured
  return [...solved.slice(0, count).entries()].flatMap(([task, n]) =>
    n !== undefined && n >= minSolved && n <= maxSolved ? [task] : [],
  )
}

function measure(state: StagesState, stage: number, to: (measuring: Measuring) => Measuring): StagesState {
  const before = state.measuring.get(stage) ?? nothingMeasured
  const after = to(before)
  return after === before ? state : { ...state, measuring: new Map(state.measuring).set(stage, after) }
}

function changeGroup(state: StagesState, group: GroupId, to: (measured: Measured) => Measured): StagesState {
  const stage = stageOf(group)
  if (stage === undefined || stage <= state.index) return state
  const before = state.groups.get(group) ?? unmeasured
  const after = to(before)
  return after === before ? state : { ...state, groups: state.groups.set(group, after) }
}
