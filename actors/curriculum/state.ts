/**
 * State of the curriculum: the groups drawn for each step, whether each was selected or rejected, and the steps done so
 * far.
 *
 * in   rollout.requested, curriculum.advanced, decisions about groups, the ends of steps, orders of a person
 * out  the state after them
 * Invariant: pure. A fact that comes twice changes nothing, and topics may be read in any order. The groups of a step
 * are forgotten when that step or a later one ends.
 */
import { Map as Persistent } from 'immutable'
import type { ControlObeyed, CurriculumAdvanced, RolloutRequested } from '../../messages/facts'
import { type GroupId, groupId, type PolicyVersion } from '../../messages/ids'
import type { Origin } from '../../runtime/host/behaviour'
import { pausedAfter } from '../ownership/orders'
import { type AlarmsState, noAlarms } from './alarms'
import { noStages, type StagesState } from './stages'
import { noTallies, type TallyState } from './tally'

interface Drawn {
  readonly groups: readonly GroupId[]
  readonly selected: ReadonlySet<GroupId>
  readonly rejected: ReadonlySet<GroupId>
  readonly reasons: Readonly<Record<string, number>>
}

/** A group with at least one request in the log, which no `curriculum.advanced` fact names yet. */
interface Asked {
  /** Start order of the group's first rollout among all rollouts of the run. */
  readonly order: number
  readonly size: number
  readonly at: Place
}

/** Log position of the first request of a group. */
interface Place {
  readonly partition: number
  readonly offset: number
}

/**
 * A draw (a batch of new groups) that was interrupted: some of its requests are in the log, but no
 * `curriculum.advanced` names it.
 */
export interface PartDraw {
  readonly purpose: CurriculumAdvanced['purpose']
  /** Number that the names of the draw's groups begin with: the step, or the stage that is measured. */
  readonly number: number
  /** Number of the draw's first group, as in the groups' names. */
  readonly first: number
  readonly groups: readonly GroupId[]
  readonly began: readonly Place[]
}

export interface CurriculumState {
  readonly cursor: number
  readonly order: number
  readonly version: PolicyVersion | null
  /**
   * Groups of draws that no `curriculum.advanced` names yet. Persistent map, because it may grow large: a refold
   * (rebuilding the state from the log) may read all requests before the `curriculum.advanced` facts of their draws.
   */
  readonly asked: Persistent<GroupId, Asked>
  /** Number of steps that are over, completed or rejected; steps count from 1. */
  readonly done: number
  /** Reasons of the latest rejected steps in a row; empty after a step that was not rejected. */
  readonly rejections: readonly string[]
  /** Number of steps that were done when the run last ended; a resume keeps it. 0 if the run never ended. */
  readonly endedAfter: number
  readonly drawn: ReadonlyMap<number, Drawn>
  /** Progress of each evaluation, by the step after which it is made. */
  readonly evaluations: ReadonlyMap<number, 'asked' | 'completed'>
  readonly finished: boolean
  /** True while a person's pause is in force. */
  readonly paused: boolean
  /** Drain or abort that a person ordered, with its reason; null if neither was ordered since the last resume. */
  readonly ends: { readonly how: 'drain' | 'abort'; readonly reason: string } | null
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
  endedAfter: 0,
  drawn: new Map(),
  evaluations: new Map(),
  finished: false,
  paused: false,
  ends: null,
  stages: noStages,
  tally: noTallies,
  alarms: noAlarms,
}

export const noneDrawn: Drawn = { groups: [], selected: new Set(), rejected: new Set(), reasons: {} }

const purposes: Readonly<Record<string, PartDraw['purpose']>> = { s: 'train', e: 'eval', m: 'measure' }
const nameOf = (group: GroupId) => /^([sem]\d+)\.(\d+)$/.exec(group)

/**
 * Records the first request of a group that no `curriculum.advanced` names yet. Ignores requests without `learnerEpoch`
 * (older logs, programs that embed an actor), and groups whose names the curriculum did not make.
 */
export function ask(state: CurriculumState, fact: RolloutRequested, { partition, offset }: Origin): CurriculumState {
  const { group, member, groupSize: size, learnerEpoch } = fact
  if (learnerEpoch === undefined || fact.order < state.order) return state
  if (state.asked.has(group) || nameOf(group) === null) return state
  const asked = { order: fact.order - member, size, at: { partition, offset } }
  return { ...state, asked: state.asked.set(group, asked) }
}

/**
 * Returns the interrupted draw; undefined if every request in the log belongs to a complete draw. Draws follow one
 * another, and each begins at the start order that the previous one left. So all requests that no `curriculum.advanced`
 * names belong to one draw; their orders give its first group, and every group up to the last one in the log is part of
 * it.
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

/**
 * Ends a step and forgets the groups that were drawn for it and for earlier steps. `rejections`: reasons of the latest
 * rejected steps in a row, this step included; empty if this step was not rejected.
 */
export function over(state: CurriculumState, step: number, rejections: readonly string[]): CurriculumState {
  const drawn = new Map(state.drawn)
  for (const old of drawn.keys()) if (old <= step) drawn.delete(old)
  return { ...state, done: step, rejections, drawn }
}

/**
 * Returns the reasons of the latest rejected steps in a row since the run last ended: a resumed run begins with none.
 */
export const rejectedInARow = ({ rejections, done, endedAfter }: CurriculumState): readonly string[] =>
  rejections.slice(Math.max(0, rejections.length - (done - endedAfter)))

/** Applies a person's order to the state: pause, resume, drain or abort. */
export function obey(state: CurriculumState, { order, reason }: ControlObeyed): CurriculumState {
  const paused = pausedAfter(state.paused, order)
  switch (order) {
    case 'pause':
      return { ...state, paused }
    case 'resume':
      return { ...state, paused, ends: null }
    case 'drain':
    case 'abort':
      return { ...state, paused, ends: { how: order, reason } }
  }
}

/**
 * True if a drained run can end: weights are published, every draw is complete, every step with groups is over, and
 * every requested evaluation is completed.
 */
export const isDrained = ({ asked, drawn, done, evaluations, version }: CurriculumState): boolean =>
  version !== null &&
  asked.size === 0 &&
  [...drawn.keys()].every(step => step <= done) &&
  [...evaluations.values()].every(one => one === 'completed')
