/**
 * Grouper: gathers the 2G rollouts of a task, closes the group, and keeps G of them (RoC, resampling on correct).
 *
 * in   partition.claimed, curriculum.claimed, rollout.requested | started | finished, reward.assigned | failed, ticks
 * out  group.closed, group.selected | group.rejected
 * Invariant: a group is closed once: when all of its members are requested and each has failed or has a reward, or at
 * its deadline. A training group is then selected or rejected once, from its members' rewards and counts and a seed
 * derived from the run's seed and the group's name, so a replay decides the same. A rollout that failed, whose
 * reward failed, or that has no reward at the deadline, is not a negative: it is left out of the selection. Evaluation
 * groups have no deadline: all of them are requested at once, so a deadline would cut off those that wait; their turns,
 * calls and rewards have their own deadlines.
 */
import { OrderedMap } from 'immutable'
import { overlongWithin, type SelectionOptions, selectGroup } from '../../kernels'
import type { Fact, GroupClosed, Purpose, RolloutStarted } from '../../messages/facts'
import { type Epoch, epoch, type GroupId, groupOf, memberOf } from '../../messages/ids'
import { ActiveClock } from '../../runtime/activeClock'
import { deriveSeed, type Effects } from '../../runtime/effects'
import { nothing, type Reactive } from '../../runtime/host/behaviour'
import { curriculumAfter, isReplaced, noCurriculum } from '../ownership/fencing'

interface Member {
  /** True once the rollout's first turn went to an engine. */
  readonly started: boolean
  readonly ended: boolean
  readonly failed: boolean
  readonly reward: number | null
  readonly toolCalls: number
  readonly toolErrors: number
  readonly answerTags: number
  readonly turns: number
  readonly responseTokens: number
}

export interface GatheredGroup {
  readonly firstOffset: number
  readonly purpose: Purpose
  readonly step: number
  readonly size: number
  /**
   * The group's deadline: `afterMs` ms after the time `from`. Two facts replace this object and so restart the
   * deadline: a member's `rollout.started`, if `waitsForStart`, and a new owner's claim of the partition, since no
   * process worked on the group just before the claim.
   */
  readonly deadline: { readonly from: number; readonly afterMs: number }
  /** True if the deadline waits until every member has started or ended, since members may wait long in a queue. */
  readonly waitsForStart: boolean
  /** Upper bound on the tokens after the prompt of each member, as the group's first request says. */
  readonly responseTokens: number
  readonly members: ReadonlyMap<number, Member>
  readonly closed: GroupClosed | null
}

export interface GrouperState {
  readonly epoch: Epoch
  readonly groups: OrderedMap<GroupId, GatheredGroup>
  readonly highestOrder: number
  /** Epoch (log offset of its claim) of the curriculum whose rollout requests are valid. */
  readonly curriculum: number
}

export interface GrouperOptions {
  readonly runSeed: number
  readonly selection: Omit<SelectionOptions, 'seed'>
}

const absent: Member = {
  started: false,
  ended: false,
  failed: false,
  reward: null,
  toolCalls: 0,
  toolErrors: 0,
  answerTags: 0,
  turns: 0,
  responseTokens: 0,
}

/** Time in ms after which a `group.closed` that is not folded (applied) counts as lost; the group is closed again. */
const foldedWithinMs = 5000

export function grouper(options: GrouperOptions): Reactive<GrouperState> {
  const clock = new ActiveClock()
  /**
   * Deadlines of the open groups at the last tick. The clock measures how long each deadline object has waited. A
   * refold (rebuilding the state from the log) makes new objects; then the old object with the same start is used
   * again, which keeps its measured wait.
   */
  let deadlines: ReadonlyMap<GroupId, GatheredGroup['deadline']> = new Map()
  /**
   * Times (ms) at which groups were closed at their deadline: the next tick may come before `group.closed` is folded.
   */
  const closedAt = new Map<GroupId, number>()

  function decideGroup(id: GroupId, group: GatheredGroup, at: Epoch, fx: Effects): Fact[] {
    const rewarded = group.closed?.rewarded ?? rewardedOf(group)
    if (group.purpose !== 'train') return []
    const seed = deriveSeed(options.runSeed, 'select', id)
    const members = rewarded.map(member => {
      const { reward, toolCalls, toolErrors, answerTags, turns, responseTokens } = group.members.get(member)!
      return { member, reward: reward!, toolCalls, toolErrors, answerTags, turns, responseTokens }
    })
    const common = { at: fx.now(), group: id, epoch: at, step: group.step }
    const selection = selectGroup(members, { ...overlongWithin(options.selection, group.responseTokens), seed })
    if (selection.kind === 'rejected') {
      const meanReward = members.reduce((sum, m) => sum + m.reward, 0) / Math.max(1, members.length)
      const { reason } = selection
      return [{ type: 'group.rejected', ...common, reason, rewarded: members.length, meanReward }]
    }
    const { variant, generator } = selection.explain
    return [
      {
        type: 'group.selected',
        ...common,
        selection: variant,
        generator,
        seed,
        whole: selection.kind === 'whole',
        kept: selection.kept.map(({ member, reward, advantage, penalty }) => ({ member, reward, advantage, penalty })),
        dropped: selection.dropped.map(({ member, reward, penalty }) => ({ member, reward, penalty })),
      },
    ]
  }

  function close(id: GroupId, group: GatheredGroup, at: Epoch, reason: GroupClosed['reason'], fx: Effects): Fact[] {
    const rewarded = rewardedOf(group)
    return [
      { type: 'group.closed', at: fx.now(), group: id, epoch: at, reason, rewarded },
      ...decideGroup(id, group, at, fx),
    ]
  }

  return {
    name: 'grouper',
    initial: () => ({ epoch: epoch(-1), groups: OrderedMap(), highestOrder: -1, curriculum: noCurriculum }),
    evolve(state, fact, origin) {
      switch (fact.type) {
        case 'partition.claimed': {
          const groups = state.groups.map(group => ({ ...group, deadline: { ...group.deadline, from: fact.at } }))
          return { ...state, epoch: epoch(origin.offset), groups }
        }
        case 'curriculum.claimed': {
          const curriculum = curriculumAfter(state.curriculum, fact)
          return curriculum === state.curriculum ? state : { ...state, curriculum }
        }
        case 'rollout.requested': {
          const open = state.groups.get(fact.group)
          if (open?.members.has(fact.member) || fact.order <= state.highestOrder) return state
          if (isReplaced(state.curriculum, fact)) return state
          const group = open ?? {
            firstOffset: origin.offset,
            purpose: fact.purpose,
            step: fact.step,
            size: fact.groupSize,
            deadline: { from: fact.at, afterMs: fact.deadlineMs },
            waitsForStart: fact.deadlineFrom === 'start',
            responseTokens: fact.limits.responseTokens,
            members: new Map(),
            closed: null,
          }
          const members = new Map(group.members).set(fact.member, absent)
          const curriculum = curriculumAfter(state.curriculum, fact)
          return { ...withGroup(state, fact.group, { ...group, members }), highestOrder: fact.order, curriculum }
        }
        case 'rollout.started':
          return withStarted(state, fact)
        case 'rollout.finished':
          if (fact.epoch !== state.epoch) return state
          return withMember(state, fact.trajectory, member =>
            member.ended
              ? member
              : {
                  ...member,
                  ended: true,
                  failed: fact.outcome === 'failed',
                  toolCalls: fact.toolCalls,
                  toolErrors: fact.toolErrors,
                  answerTags: fact.answerTags,
                  turns: fact.turns,
                  responseTokens: fact.responseTokens ?? fact.sampledTokens,
                },
          )
        case 'reward.assigned':
          return withMember(state, fact.trajectory, member =>
            member.ended && !member.failed && member.reward === null ? { ...member, reward: fact.reward } : member,
          )
        case 'reward.failed':
          return withMember(state, fact.trajectory, member =>
            member.ended && !member.failed && member.reward === null ? { ...member, failed: true } : member,
          )
        case 'group.closed': {
          const group = state.groups.get(fact.group)
          if (group === undefined || group.closed !== null || fact.epoch !== state.epoch) return state
          if (group.purpose !== 'train') return withoutGroup(state, fact.group)
          return withGroup(state, fact.group, { ...group, closed: fact })
        }
        case 'group.selected':
        case 'group.rejected': {
          const group = state.groups.get(fact.group)
          if (group?.closed == null || fact.epoch !== state.epoch) return state
          return withoutGroup(state, fact.group)
        }
        default:
          return state
      }
    },
    asked: (state, highestOrder) => ({ ...state, highestOrder: Math.max(state.highestOrder, highestOrder) }),
    decide(state, input, fx) {
      switch (input.type) {
        case 'rollout.finished':
        case 'reward.assigned':
        case 'reward.failed': {
          const id = groupOf(input.trajectory)
          const group = state.groups.get(id)
          if (group === undefined || group.closed !== null || !isComplete(group)) return nothing
          return { facts: close(id, group, state.epoch, 'complete', fx), commands: [] }
        }
        case 'tick': {
          const facts: Fact[] = []
          const open = new Map<GroupId, GatheredGroup['deadline']>()
          clock.tick(fx)
          for (const [id, at] of closedAt) if (fx.elapsed() - at >= foldedWithinMs) closedAt.delete(id)
          for (const [id, group] of state.groups) {
            if (group.purpose === 'eval' || group.closed !== null || !isDeadlineSet(group)) continue
            const known = deadlines.get(id)
            const deadline = known?.from === group.deadline.from ? known : group.deadline
            open.set(id, deadline)
            if (clock.waited(deadline, deadline.from) <= deadline.afterMs || closedAt.has(id)) continue
            closedAt.set(id, fx.elapsed())
            facts.push(...close(id, group, state.epoch, 'deadline', fx))
          }
          deadlines = open
          return { facts, commands: [] }
        }
        default:
          return nothing
      }
    },
    pending(state, fx) {
      const facts: Fact[] = []
      for (const [id, group] of state.groups) {
        if (group.closed !== null) facts.push(...decideGroup(id, group, state.epoch, fx))
        else if (isComplete(group)) facts.push(...close(id, group, state.epoch, 'complete', fx))
      }
      return { facts, commands: [] }
    },
  }
}

/**
 * Returns the offset of the earliest record of any open group, where a refold starts; undefined if no group is open.
 */
export function oldestOpenGroup(state: GrouperState): number | undefined {
  const offsets = [...state.groups.values()].map(group => group.firstOffset)
  return offsets.length === 0 ? undefined : Math.min(...offsets)
}

const rewardedOf = (group: GatheredGroup) =>
  [...group.members]
    .filter(([, m]) => m.reward !== null)
    .map(([member]) => member)
    .sort((a, b) => a - b)

const isComplete = (group: GatheredGroup) =>
  group.members.size === group.size &&
  [...group.members.values()].every(m => m.ended && (m.failed || m.reward !== null))

const isDeadlineSet = (group: GatheredGroup): boolean =>
  !group.waitsForStart ||
  (group.members.size === group.size && [...group.members.values()].every(m => m.started || m.ended))

/**
 * Records that a member's first turn went to an engine, and restarts the group's deadline. Changes nothing if the
 * deadline does not wait for that (`waitsForStart` is false), the group is closed, or the member started or ended
 * before.
 */
function withStarted(state: GrouperState, { trajectory, at }: RolloutStarted): GrouperState {
  const id = groupOf(trajectory)
  const group = state.groups.get(id)
  const before = group?.members.get(memberOf(trajectory))
  if (!group?.waitsForStart || group.closed !== null || before === undefined || before.started || before.ended)
    return state
  const members = new Map(group.members).set(memberOf(trajectory), { ...before, started: true })
  const deadline = { ...group.deadline, from: Math.max(group.deadline.from, at) }
  return withGroup(state, id, { ...group, members, deadline })
}

function withGroup(state: GrouperState, id: GroupId, group: GatheredGroup): GrouperState {
  return { ...state, groups: state.groups.set(id, group) }
}

function withoutGroup(state: GrouperState, id: GroupId): GrouperState {
  return { ...state, groups: state.groups.delete(id) }
}

function withMember(
  state: GrouperState,
  trajectory: Parameters<typeof groupOf>[0],
  change: (member: Member) => Member,
): GrouperState {
  const id = groupOf(trajectory)
  const group = state.groups.get(id)
  const before = group?.members.get(memberOf(trajectory))
  if (group === undefined || before === undefined || group.closed !== null) return state
  const after = change(before)
  if (after === before) return state
  return withGroup(state, id, { ...group, members: new Map(group.members).set(memberOf(trajectory), after) })
}
