/**
 * State of the curriculum: the groups drawn for each step, how they ended, and how far the run is.
 *
 * in   rollout.requested, curriculum.advanced, decisions about groups, the ends of steps        out  the state after them
 * Invariant: pure. A fact that comes twice changes nothing, and topics may be read in any order. Groups of finished steps are
 * not kept.
 */
import { Map as Persistent } from 'immutable'
import type { CurriculumAdvanced, RolloutRequested } from '../../messages/facts'
import { type GroupId, groupId, type PolicyVersion } from '../../messages/ids'
import type { Origin } from '../../runtime/host/behaviour'
import { type AlarmsState, noAlarms } from './alarms'
import { noStages, type StagesState } from './stages'
import { noTallies, type TallyState } from './tally'

interface Drawn {
  readonly groups: readonly GroupId[]
  readonly selected: ReadonlySet<GroupId>
  readonly rejected: ReadonlySet<GroupId>
  readonly reasons: Readonly<Record<string, number>>
}

/** A group that is requested in the log and that no `curriculum.advanced` names yet. */
interface Asked {
  /** Start order of its first member. */
  readonly order: number
  readonly size: number
  readonly at: Place
}

/** Place of the first of a group's requests. */
interface Place {
  readonly partition: number
  readonly offset: number
}

/** A draw whose requests are (in part) in the log, and that no `curriculum.advanced` names. */
export interface PartDraw {
  readonly purpose: CurriculumAdvanced['purpose']
  /** Number in its groups' names: that of the step, or of the stage that is measured. */
  readonly number: number
  /** Number of its first group, as in the groups' names. */
  readonly first: number
  readonly groups: readonly GroupId[]
  readonly began: readonly Place[]
}

export interface CurriculumState {
  readonly cursor: number
  readonly order: number
  readonly version: PolicyVersion | null
  /** A persistent map: a refold may read all requests before the draws that they belong to. */
  readonly asked: Persistent<GroupId, Asked>
  /** Steps that are over, completed or rejected; steps count from 1. */
  readonly done: number
  /** Reason of the rejection of each of the newest steps; [] after a step that was not rejected. */
  readonly rejections: readonly string[]
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
  asked: Persistent(),
  version: null,
  done: 0,
  rejections: [],
  drawn: new Map(),
  evaluations: new Map(),
  finished: false,
  stages: noStages,
  tally: noTallies,
  alarms: noAlarms,
}

export const noneDrawn: Drawn = { groups: [], selected: new Set(), rejected: new Set(), reasons: {} }

const purposes: Readonly<Record<string, PartDraw['purpose']>> = { s: 'train', e: 'eval', m: 'measure' }
const nameOf = (group: GroupId) => /^([sem]\d+)\.(\d+)$/.exec(group)

/** Requests without a curriculum (older logs, embedding users) belong to no draw of ours. */
export function ask(state: CurriculumState, fact: RolloutRequested, { partition, offset }: Origin): CurriculumState {
  const { group, member, groupSize: size, learnerEpoch } = fact
  if (learnerEpoch === undefined || fact.order < state.order) return state
  if (state.asked.has(group) || nameOf(group) === null) return state
  const asked = { order: fact.order - member, size, at: { partition, offset } }
  return { ...state, asked: state.asked.set(group, asked) }
}

/**
 * Draws follow one another, and each begins at the order that the one before it leaves. So the requests that no draw names form
 * one draw; the orders tell its first group, and all groups up to the last one in the log belong to it.
 */
export function partDraw({ asked, order }: CurriculumState): PartDraw | undefined {
  const [earliest] = asked.sortBy(one => one.order).entries()
  if (earliest === undefined) return undefined
  const [group, { order: at, size }] = earliest
  const [, of = '', index = ''] = nameOf(group)!
  const first = Math.max(0, Number(index) - Math.floor((at - order) / size))
  const own = asked.filter((_, one) => nameOf(one)![1] === of)
  const last = Math.max(...[...own.keys()].map(one => Number(nameOf(one)![2])))
  const groups = Array.from({ length: last - first + 1 }, (_, k) =>
    groupId(`${of}.${String(first + k).padStart(index.length, '0')}`),
  )
  const began = [...own.values()].map(one => one.at)
  return { purpose: purposes[of[0]!]!, number: Number(of.slice(1)), first, groups, began }
}

export function advance(earlier: CurriculumState, fact: CurriculumAdvanced): CurriculumState {
  const order = Math.max(earlier.order, fact.order)
  const state =
    order === earlier.order ? earlier : { ...earlier, order, asked: earlier.asked.filter(one => one.order >= order) }
  if (fact.purpose === 'measure') return state
  if (fact.purpose === 'eval') {
    if (state.evaluations.has(fact.step)) return state
    return { ...state, evaluations: new Map(state.evaluations).set(fact.step, 'asked') }
  }
  const before = state.drawn.get(fact.step) ?? noneDrawn
  const groups = [...before.groups, ...fact.groups.filter(g => !before.groups.includes(g))]
  if (groups.length === before.groups.length) return state
  const drawn = new Map(state.drawn).set(fact.step, { ...before, groups })
  return { ...state, cursor: Math.max(state.cursor, fact.cursor), drawn }
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

/** Ends a step and forgets the groups that were drawn for it. */
export function over(state: CurriculumState, step: number, rejections: readonly string[]): CurriculumState {
  const drawn = new Map(state.drawn)
  for (const old of drawn.keys()) if (old <= step) drawn.delete(old)
  return { ...state, done: step, rejections, drawn }
}
