/**
 * What the curriculum remembers: the groups that were drawn for each step and how they ended, and where it is.
 *
 * in   rollout.requested, curriculum.advanced, decisions about groups, the ends of steps        out  the state after them
 * Invariant: pure, and facts that come twice change nothing; topics may be read in any order. Of steps that are over no
 * group is kept.
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

/** A group that is asked for in the log and in no draw that is told yet. */
interface Asked {
  /** Of its first member. */
  readonly order: number
  readonly size: number
  readonly at: Place
}

/** Where the first of a group's requests stands. */
interface Place {
  readonly partition: number
  readonly offset: number
}

/** A draw of which requests are in the log, and that nobody has told. */
export interface PartDraw {
  readonly purpose: CurriculumAdvanced['purpose']
  /** The number in its groups' names: of the step, of the stage that is measured. */
  readonly number: number
  /** Of its first group, in their names. */
  readonly first: number
  readonly groups: readonly GroupId[]
  readonly began: readonly Place[]
}

export interface CurriculumState {
  readonly cursor: number
  readonly order: number
  readonly version: PolicyVersion | null
  /** Persistent: a refold may meet all requests before the draws that they are of. */
  readonly asked: Persistent<GroupId, Asked>
  /** Steps that are over, completed or rejected; steps count from 1. */
  readonly done: number
  /** Why each of the newest steps was rejected; [] after one that was not. */
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

/** Requests that name no curriculum, of older logs and of users, are in no draw of ours. */
export function ask(state: CurriculumState, fact: RolloutRequested, { partition, offset }: Origin): CurriculumState {
  const { group, member, groupSize: size, learnerEpoch } = fact
  if (learnerEpoch === undefined || fact.order < state.order) return state
  if (state.asked.has(group) || nameOf(group) === null) return state
  const asked = { order: fact.order - member, size, at: { partition, offset } }
  return { ...state, asked: state.asked.set(group, asked) }
}

/**
 * Draws follow one another and each begins at the order that the one before it leaves: what was asked for and not told is one
 * draw, whose first group the orders tell, and all groups up to the last that is there are its own.
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

/** The step is over, and what was drawn for it is forgotten. */
export function over(state: CurriculumState, step: number, rejections: readonly string[]): CurriculumState {
  const drawn = new Map(state.drawn)
  for (const old of drawn.keys()) if (old <= step) drawn.delete(old)
  return { ...state, done: step, rejections, drawn }
}
