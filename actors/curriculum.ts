/**
 * Curriculum: says which groups of rollouts a step, or an evaluation, is made of, and when the run is over.
 *
 * in   weights.published, step.completed | rejected, group.selected | rejected, evaluation.completed, curriculum.advanced
 * out  requests to render prompts (answered by rollout.requested and curriculum.advanced), alarm.raised, run.finished
 * Invariant: which task a group gets follows from its index alone, and each rejected group is replaced by exactly one, so
 * two runs of one seed ask for the same groups whatever the order of arrival. Groups of a step are asked for only while
 * the step is at most `maxStaleness` ahead of the learner (DESIGN §6, staleness).
 */
import type { CurriculumAdvanced, Fact } from '../messages/facts'
import { type GroupId, groupId, type PolicyVersion, policyVersion, type RunId } from '../messages/ids'
import type { Behaviour } from '../runtime/behaviour'
import type { Effects } from '../runtime/effects'

export interface CurriculumPlan {
  readonly run: RunId
  readonly steps: number
  readonly groupsPerStep: number
  readonly refillShare: number
  readonly maxStaleness: number
  readonly evaluation: { readonly problems: number; readonly every: number }
  /** Non-finite steps in a row after which the run stops. */
  readonly maxRejectedSteps: number
  /** Without a learner a step is over when its groups are decided. */
  readonly learns: boolean
}

interface Drawn {
  readonly groups: readonly GroupId[]
  readonly selected: ReadonlySet<GroupId>
  readonly rejected: ReadonlySet<GroupId>
  readonly reasons: Readonly<Record<string, number>>
}

export interface CurriculumState {
  readonly cursor: number
  readonly order: number
  readonly version: PolicyVersion | null
  /** Steps that are over, completed or rejected; steps count from 1. */
  readonly done: number
  readonly rejectedInARow: number
  readonly drawn: ReadonlyMap<number, Drawn>
  /** Evaluations by the step after which they were made. */
  readonly evaluations: ReadonlyMap<number, 'asked' | 'completed'>
  readonly finished: boolean
}

/** Asks for prompts of new groups; answered by their rollout.requested facts and one curriculum.advanced. */
export interface DrawRequest {
  readonly kind: 'draw'
  readonly purpose: 'train' | 'eval'
  readonly step: number
  readonly groups: readonly GroupId[]
  /** Index of the first group's task. */
  readonly cursor: number
  readonly order: number
  readonly minVersion: PolicyVersion
}

const none: Drawn = { groups: [], selected: new Set(), rejected: new Set(), reasons: {} }
const pad = (n: number) => String(n).padStart(4, '0')

export function curriculum(plan: CurriculumPlan): Behaviour<CurriculumState, never, DrawRequest> {
  const largest = Math.floor(plan.groupsPerStep * (1 + plan.refillShare))

  const evaluatesAfter = (step: number): boolean => {
    if (plan.evaluation.problems === 0) return false
    if (step === 0 || step === plan.steps) return true
    return plan.evaluation.every > 0 && step % plan.evaluation.every === 0
  }

  /** The oldest evaluation that is due and has no result. */
  function openEvaluation(state: CurriculumState): number | undefined {
    for (let step = 0; step <= state.done; step++) {
      if (evaluatesAfter(step) && state.evaluations.get(step) !== 'completed') return step
    }
    return undefined
  }

  function drawMore(state: CurriculumState): DrawRequest[] {
    if (state.version === null || state.finished) return []
    const minVersion = policyVersion(Math.max(0, state.version - plan.maxStaleness))
    const evaluation = openEvaluation(state)
    if (evaluation !== undefined) {
      if (state.evaluations.has(evaluation)) return []
      const groups = Array.from({ length: plan.evaluation.problems }, (_, k) =>
        groupId(`e${pad(evaluation)}.${pad(k)}`),
      )
      const { version, order } = state
      return [{ kind: 'draw', purpose: 'eval', step: evaluation, groups, cursor: 0, order, minVersion: version }]
    }
    const last = Math.min(plan.steps, state.done + 1 + plan.maxStaleness)
    for (let step = state.done + 1; step <= last; step++) {
      const drawn = state.drawn.get(step) ?? none
      const missing = plan.groupsPerStep - (drawn.groups.length - drawn.rejected.size)
      const wanted = Math.min(missing, largest - drawn.groups.length)
      if (wanted <= 0) continue
      const first = drawn.groups.length
      const groups = Array.from({ length: wanted }, (_, k) => groupId(`s${pad(step)}.${pad(first + k)}`))
      const { cursor, order } = state
      return [{ kind: 'draw', purpose: 'train', step, groups, cursor, order, minVersion }]
    }
    return []
  }

  function finish(state: CurriculumState, fx: Effects): Fact[] {
    if (state.finished) return []
    const over = (outcome: 'done' | 'failed', reason: string): Fact[] => {
      const alarm: Fact[] =
        outcome === 'failed' ? [{ type: 'alarm.raised', at: fx.now(), alarm: 'run-failed', message: reason }] : []
      return [
        ...alarm,
        { type: 'run.finished', at: fx.now(), run: plan.run, outcome, reason, steps: state.done, summary: {} },
      ]
    }
    if (state.rejectedInARow >= plan.maxRejectedSteps) {
      return over('failed', `${state.rejectedInARow} steps in a row were not finite; lower train.learningRate`)
    }
    const drawn = state.drawn.get(state.done + 1)
    if (
      plan.learns &&
      drawn !== undefined &&
      drawn.groups.length >= largest &&
      drawn.rejected.size === drawn.groups.length
    ) {
      const why = Object.entries(drawn.reasons).map(([reason, n]) => `${n} ${reason}`)
      return over(
        'failed',
        `step ${state.done + 1} has no group to train on: ${why.join(', ')} of ${drawn.groups.length}`,
      )
    }
    if (state.done >= plan.steps && openEvaluation(state) === undefined) return over('done', 'all steps are done')
    return []
  }

  /** Steps that nobody trains on end by themselves. */
  function settle(state: CurriculumState): CurriculumState {
    const drawn = state.drawn.get(state.done + 1)
    if (plan.learns || drawn === undefined) return state
    const decided = drawn.selected.size + drawn.rejected.size
    const enough = drawn.selected.size >= plan.groupsPerStep || drawn.groups.length >= largest
    return enough && decided === drawn.groups.length ? over(state, state.done + 1, 0) : state
  }

  return {
    name: 'curriculum',
    initial: () => ({
      cursor: 0,
      order: 0,
      version: null,
      done: 0,
      rejectedInARow: 0,
      drawn: new Map(),
      evaluations: new Map(),
      finished: false,
    }),
    evolve(state, fact) {
      switch (fact.type) {
        case 'weights.published':
          return { ...state, version: fact.version }
        case 'curriculum.advanced':
          return settle(advance(state, fact))
        case 'group.selected':
          return settle(decided(state, fact.step, fact.group, 'selected', ''))
        case 'group.rejected':
          return settle(decided(state, fact.step, fact.group, 'rejected', fact.reason))
        case 'step.completed':
          return fact.step <= state.done ? state : over(state, fact.step, 0)
        case 'step.rejected':
          return fact.step <= state.done ? state : over(state, fact.step, state.rejectedInARow + 1)
        case 'evaluation.completed':
          return { ...state, evaluations: new Map(state.evaluations).set(fact.step, 'completed') }
        case 'run.finished':
          return { ...state, finished: true }
        case 'run.resumed':
          return { ...state, finished: false }
        default:
          return state
      }
    },
    pending: (state, fx) => ({ facts: finish(state, fx), commands: [], requests: drawMore(state) }),
  }
}

function advance(state: CurriculumState, fact: CurriculumAdvanced): CurriculumState {
  const order = Math.max(state.order, fact.order)
  if (fact.purpose === 'eval') {
    if (state.evaluations.has(fact.step)) return state
    return { ...state, order, evaluations: new Map(state.evaluations).set(fact.step, 'asked') }
  }
  const before = state.drawn.get(fact.step) ?? none
  const groups = [...before.groups, ...fact.groups.filter(g => !before.groups.includes(g))]
  if (groups.length === before.groups.length) return state
  const drawn = new Map(state.drawn).set(fact.step, { ...before, groups })
  return { ...state, order, cursor: Math.max(state.cursor, fact.cursor), drawn }
}

function decided(
  state: CurriculumState,
  step: number,
  group: GroupId,
  how: 'selected' | 'rejected',
  reason: string,
): CurriculumState {
  const before = state.drawn.get(step) ?? none
  if (step <= state.done || before.selected.has(group) || before.rejected.has(group)) return state
  const after = { ...before, [how]: new Set(before[how]).add(group) }
  const reasons = reason === '' ? before.reasons : { ...before.reasons, [reason]: (before.reasons[reason] ?? 0) + 1 }
  return { ...state, drawn: new Map(state.drawn).set(step, { ...after, reasons }) }
}

function over(state: CurriculumState, step: number, rejectedInARow: number): CurriculumState {
  const drawn = new Map(state.drawn)
  for (const old of drawn.keys()) if (old <= step) drawn.delete(old)
  return { ...state, done: step, rejectedInARow, drawn }
}
