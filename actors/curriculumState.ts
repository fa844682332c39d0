/**
 * What the curriculum remembers: the groups that were drawn for each step and how they ended, and where it is.
 *
 * in   curriculum.advanced, decisions about groups, the ends of steps        out  the state after them
 * Invariant: pure, and facts that come twice change nothing. Of steps that are over no group is kept.
 */
import type { CurriculumAdvanced } from '../messages/facts'
import type { GroupId, PolicyVersion } from '../messages/ids'
import { type AlarmsState, noAlarms } from './alarms'
import { noStages, type StagesState } from './stages'
import { noTallies, type TallyState } from './tally'

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
  readonly stages: StagesState
  readonly tally: TallyState
  readonly alarms: AlarmsState
}

export const emptyCurriculum: CurriculumState = {
  cursor: 0,
  order: 0,
  version: null,
  done: 0,
  rejectedInARow: 0,
  drawn: new Map(),
  evaluations: new Map(),
  finished: false,
  stages: noStages,
  tally: noTallies,
  alarms: noAlarms,
}

export const noneDrawn: Drawn = { groups: [], selected: new Set(), rejected: new Set(), reasons: {} }

export function advance(state: CurriculumState, fact: CurriculumAdvanced): CurriculumState {
  const order = Math.max(state.order, fact.order)
  if (fact.purpose === 'measure') return order === state.order ? state : { ...state, order }
  if (fact.purpose === 'eval') {
    if (state.evaluations.has(fact.step)) return state
    return { ...state, order, evaluations: new Map(state.evaluations).set(fact.step, 'asked') }
  }
  const before = state.drawn.get(fact.step) ?? noneDrawn
  const groups = [...before.groups, ...fact.groups.filter(g => !before.groups.includes(g))]
  if (groups.length === before.groups.length) return state
  const drawn = new Map(state.drawn).set(fact.step, { ...before, groups })
  return { ...state, order, cursor: Math.max(state.cursor, fact.cursor), drawn }
}

export function decided(
  state: CurriculumState,
  step: number,
  group: GroupId,
  how: 'selected' | 'rejected',
  reason: string,
): CurriculumState {
  const before = state.drawn.get(step) ?? noneDrawn
  if (step <= state.done || before.selected.has(group) || before.rejected.has(group)) return state
  const after = { ...before, [how]: new Set(before[how]).add(group) }
  const reasons = reason === '' ? before.reasons : { ...before.reasons, [reason]: (before.reasons[reason] ?? 0) + 1 }
  return { ...state, drawn: new Map(state.drawn).set(step, { ...after, reasons }) }
}

/** The step is over, and what was drawn for it is forgotten. */
export function over(state: CurriculumState, step: number, rejectedInARow: number): CurriculumState {
  const drawn = new Map(state.drawn)
  for (const old of drawn.keys()) if (old <= step) drawn.delete(old)
  return { ...state, done: step, rejectedInARow, drawn }
}
