/**
 * Coordinator: drives every rollout of a partition from its prompt to its end.
 *
 * in   partition.claimed, scheduler.claimed, curriculum.claimed, rollout.requested | started,
 *      turn.completed | interrupted, tool.completed, context.appended, group.closed, reward.assigned | failed, ticks;
 *      session.opened, call.started | finished of rollouts that agents drive
 * out  turn.asked + turn.generate, tool.asked + tool.execute, tool.completed of a call that cannot run,
 *      rollout.finished + trajectory.release, tool.cancel and answer.verify; requests to render, to start and end an
 *      agent
 * Invariant: an answer counts only for the attempt asked last. The next action of a rollout follows only from its
 * state, so after a refold (the state is rebuilt from the log) `pending` asks again exactly for what has no answer:
 * turns and tool calls, under new attempts; renderings; rewards, until their group is closed.
 */
import { OrderedMap } from 'immutable'
import { type Epoch, epoch, type GroupId, groupOf, memberOf, type TrajectoryId } from '../../messages/ids'
import { ActiveClock } from '../../runtime/activeClock'
import { nothing, type Reactive } from '../../runtime/host/behaviour'
import { curriculumAfter, isReplaced, noCurriculum } from '../ownership/fencing'
import { notOpened } from './led'
import {
  addCallAfter,
  addNextActions,
  answerVerify,
  awaitsReward,
  executeTool,
  type NextActions,
  type OwnerRequest,
} from './nextActions'
import { type Call, callTimeoutMs, evolveRollout, newRollout, type Rollout } from './rollout'

interface CoordinatedGroup {
  readonly firstOffset: number
  /** Persistent map: a copy of a plain map of 32 members takes 2.5 µs, and nearly every fact makes one. */
  readonly members: OrderedMap<number, Rollout>
  readonly closed: boolean
}

export interface CoordinatorState {
  readonly epoch: Epoch
  /**
   * Persistent map: with thousands of groups, copying a plain map for each fact would be most of the coordinator's
   * work.
   */
  readonly groups: OrderedMap<GroupId, CoordinatedGroup>
  /** Highest start order seen so far. A `rollout.requested` at or below it is a repetition and is ignored. */
  readonly highestOrder: number
  /**
   * Epoch of the curriculum whose rollout requests are valid: the `learnerEpoch` of the latest `curriculum.claimed`,
   * which is the offset of that process's `learner.claimed` in the topic `learner`. -1 before the first claim.
   */
  readonly curriculum: number
  /** Log offset of the latest `scheduler.claimed`. */
  readonly scheduler: number
}

export interface CoordinatorOptions {
  /** Time in ms without an answer after which a turn is asked again. */
  readonly turnTimeoutMs: number
  /** Time in ms after which the verifier is asked again for a finished rollout without a reward. Default: 30,000. */
  readonly verifyTimeoutMs?: number
  /**
   * Present if agents drive the rollouts. `isGraded`: true if a grader judges the agents' texts; false if the reward
   * comes with the agent's end.
   */
  readonly agents?: { readonly isGraded: boolean }
}

/** Time in ms, for queueing and the bus, that is added to a tool's own timeout before the request is repeated. */
const toolGraceMs = 60_000
const usualVerifyTimeoutMs = 30_000
/**
 * Minimum time in ms between two searches for overdue requests: with 45,000 open tool calls a search takes 70 ms, and
 * hosts tick every 250 ms.
 */
const lookEveryMs = 1000

export function coordinator(options: CoordinatorOptions): Reactive<CoordinatorState, never, OwnerRequest> {
  const { verifyTimeoutMs = usualVerifyTimeoutMs, agents } = options
  const led = agents === undefined ? undefined : { ...notOpened, isGraded: agents.isGraded }
  /**
   * Measures how long each rollout has waited since its state last changed, and each tool call since its latest
   * attempt.
   */
  const clock = new ActiveClock()
  /** Time of the latest search for overdue requests, on `clock`. */
  let lookedAt = Number.NEGATIVE_INFINITY
  /**
   * Time on `clock` of the latest request made for each rollout state. The facts of that request may not be folded yet,
   * so the request is not repeated within `options.turnTimeoutMs`.
   */
  const askedAt = new WeakMap<Rollout, number>()
  const isAsked = (rollout: Rollout) =>
    clock.now - (askedAt.get(rollout) ?? Number.NEGATIVE_INFINITY) <= options.turnTimeoutMs
  const isLost = (call: Call, rollout: Rollout) =>
    call.response === null &&
    call.attempt >= 0 &&
    clock.waited(call, call.askedAt) > callTimeoutMs(rollout, call) + toolGraceMs
  const isUnjudged = (rollout: Rollout) =>
    rollout.phase === 'finished' && awaitsReward(rollout) && clock.waited(rollout, rollout.askedAt) > verifyTimeoutMs

  /**
   * Time in ms without an answer after which the rollout's turn is asked again: `options.turnTimeoutMs`. Before the
   * rollout's first turn went to an engine, this time doubles with each attempt, since the queue may be hours long (but
   * not for requests of older logs, without `deadlineFrom`).
   */
  const turnTimeoutMs = ({ started, attempt, request }: Rollout) =>
    options.turnTimeoutMs * (started || request.deadlineFrom === undefined ? 1 : 2 ** attempt)

  const isOverdue = (rollout: Rollout) =>
    rollout.phase === 'turn' && rollout.open && clock.waited(rollout, rollout.askedAt) > turnTimeoutMs(rollout)
  /**
   * Repeats the requests for lost tool calls, under the same attempts: a call may wait longer than its deadline behind
   * thousands of others, and the dispatcher ignores the repetition of a call that waits or runs. No fact records a
   * repetition.
   */
  function repeatLost(rollout: Rollout, at: Epoch, out: NextActions): void {
    if (rollout.phase !== 'tools') return
    for (const [index, call] of rollout.calls.entries()) {
      if (!isLost(call, rollout)) continue
      clock.restart(call)
      out.commands.push(executeTool(rollout, index, call.attempt, at))
    }
  }

  return {
    name: 'coordinator',
    initial: () => ({
      epoch: epoch(-1),
      groups: OrderedMap(),
      highestOrder: -1,
      curriculum: noCurriculum,
      scheduler: -1,
    }),
    evolve(state, fact, origin) {
      switch (fact.type) {
        case 'partition.claimed':
          return { ...state, epoch: epoch(origin.offset) }
        case 'scheduler.claimed':
          return { ...state, scheduler: origin.offset }
        case 'curriculum.claimed': {
          const curriculum = curriculumAfter(state.curriculum, fact)
          return curriculum === state.curriculum ? state : { ...state, curriculum }
        }
        case 'rollout.requested': {
          const open = state.groups.get(fact.group)
          if (open?.members.has(fact.member) || fact.order <= state.highestOrder) return state
          if (isReplaced(state.curriculum, fact)) return state
          const group = open ?? { firstOffset: origin.offset, members: OrderedMap<number, Rollout>(), closed: false }
          const members = group.members.set(fact.member, newRollout(fact, led))
          const groups = state.groups.set(fact.group, { ...group, members })
          return { ...state, groups, highestOrder: fact.order, curriculum: curriculumAfter(state.curriculum, fact) }
        }
        case 'group.closed': {
          const group = state.groups.get(fact.group)
          if (group === undefined || group.closed || fact.epoch !== state.epoch) return state
          const members = group.members.map(rollout => evolveRollout(rollout, fact, state.epoch))
          return put(state, fact.group, { ...group, members, closed: true })
        }
        default: {
          if (!('trajectory' in fact)) return state
          const id = groupOf(fact.trajectory)
          const group = state.groups.get(id)
          const before = group?.members.get(memberOf(fact.trajectory))
          if (group === undefined || before === undefined) return state
          const after = evolveRollout(before, fact, state.epoch)
          if (after === before) return state
          return put(state, id, { ...group, members: group.members.set(after.request.member, after) })
        }
      }
    },
    asked: (state, highestOrder) => ({ ...state, highestOrder: Math.max(state.highestOrder, highestOrder) }),
    decide(state, input, fx) {
      const out: NextActions = { facts: [], commands: [], requests: [] }
      switch (input.type) {
        case 'rollout.requested':
        case 'turn.completed':
        case 'turn.interrupted':
        case 'context.appended': {
          const rollout = find(state, input.trajectory)
          if (rollout !== undefined) addNextActions(rollout, state.epoch, fx, out)
          return out
        }
        case 'tool.completed': {
          const rollout = find(state, input.trajectory)
          if (rollout?.phase === 'append' || rollout?.phase === 'ended') addNextActions(rollout, state.epoch, fx, out)
          else if (rollout?.phase === 'tools') addCallAfter(rollout, input.call, state.epoch, fx, out)
          return out
        }
        case 'group.closed':
          for (const rollout of state.groups.get(input.group)?.members.values() ?? []) {
            if (rollout.phase === 'ended') addNextActions(rollout, state.epoch, fx, out)
          }
          return out
        case 'tick': {
          clock.tick(fx)
          if (clock.now - lookedAt < lookEveryMs) return nothing
          lookedAt = clock.now
          for (const rollout of rolloutsOf(state)) {
            if (isOverdue(rollout) && !isAsked(rollout)) {
              askedAt.set(rollout, clock.now)
              addNextActions(rollout, state.epoch, fx, out)
            }
            repeatLost(rollout, state.epoch, out)
            if (!isUnjudged(rollout)) continue
            // No fact records that the verifier was asked again: a repeated request costs only the grader's time.
            clock.restart(rollout)
            out.commands.push(answerVerify(rollout))
          }
          return out
        }
        case 'scheduler.claimed':
          // Repeats the requests made before the new scheduler's claim; later requests reach it anyway.
          for (const rollout of rolloutsOf(state)) {
            const isOut = rollout.phase === 'turn' ? rollout.open : rollout.phase === 'tools'
            if (isOut && !isAsked(rollout)) addNextActions(rollout, state.epoch, fx, out, call => call.attempt >= 0)
          }
          return out
        default:
          return nothing
      }
    },
    pending(state, fx) {
      const out: NextActions = { facts: [], commands: [], requests: [] }
      for (const rollout of rolloutsOf(state)) {
        askedAt.set(rollout, clock.now)
        addNextActions(rollout, state.epoch, fx, out)
      }
      return out
    },
  }
}

/** Stores a group, or removes it once it is closed and all of its rollouts are finished. */
function put(state: CoordinatorState, id: GroupId, group: CoordinatedGroup): CoordinatorState {
  const over = group.closed && group.members.every(r => r.phase === 'finished')
  return { ...state, groups: over ? state.groups.delete(id) : state.groups.set(id, group) }
}

function* rolloutsOf(state: CoordinatorState): Generator<Rollout, void, undefined> {
  for (const group of state.groups.values()) yield* group.members.values()
}

const find = (state: CoordinatorState, id: TrajectoryId): Rollout | undefined =>
  state.groups.get(groupOf(id))?.members.get(memberOf(id))
