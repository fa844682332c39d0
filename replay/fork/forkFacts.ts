/**
 * Facts that a forked trajectory begins with: the first turns of another, as they were recorded.
 *
 * in   a trajectory that counts, the turn to fork at, what is to be otherwise        out  the facts of each fork
 * Invariant: what is shared is shared to the token: nothing of it is generated, run or rendered again. Only an edited tool
 * result leaves out what was rendered after it, which the coordinator then asks for.
 */
import type { Sampling, ToolCompleted, TrajectoryFact, TrajectoryForked } from '../../messages/facts'
import { epoch, groupId, policyVersion, type RunId, trajectoryId } from '../../messages/ids'
import { deriveSeed } from '../../runtime/effects'
import { replayError } from '../replayError'
import { factsIn, type Trajectory } from '../trajectories/trajectory'

export interface TurnFork {
  readonly parent: Trajectory
  readonly parentRun: RunId
  /** Turns before this one are shared. */
  readonly turn: number
  readonly times: number
  /** Default: derived from the parent's, so that no fork repeats another or the parent. */
  readonly seed?: number
  readonly temperature?: number
  /** In place of the text of the last tool result before the turn. */
  readonly toolResult?: string
  /** Of another recipe, by name. */
  readonly tools?: readonly string[]
  readonly deadlineMs: number
  /** Start order of the first fork. */
  readonly order: number
  readonly at: number
}

export interface ForkFacts {
  readonly facts: readonly TrajectoryFact[]
  readonly lineage: readonly TrajectoryForked[]
}

/** Turns that the parent has: a fork begins at one of them. */
export const turnsOf = (parent: Trajectory): number => parent.texts.length

/** Of the claim that stands first in the fork's partition. */
const shared = epoch(0)

/** @throws TroupeError replay.no_turn, replay.no_tool_result */
export function forkFacts(plan: TurnFork): ForkFacts {
  const { parent, turn, times, at } = plan
  if (turn >= turnsOf(parent)) {
    throw refused('no_turn', `${parent.id} has turns 0 to ${turnsOf(parent) - 1}, no turn ${turn}`)
  }
  const prefix = sharedFacts(plan)
  const group = groupId(`fork.${parent.request.group}.${parent.request.member}.t${turn}`)
  const { request } = parent
  const sampling: Sampling =
    plan.temperature === undefined ? request.sampling : { ...request.sampling, temperature: plan.temperature }
  const facts: TrajectoryFact[] = []
  const lineage: TrajectoryForked[] = []
  for (let member = 0; member < times; member++) {
    const trajectory = trajectoryId(group, member)
    const seed = deriveSeed(plan.seed ?? request.seed, 'fork', turn, member)
    facts.push({
      ...request,
      ...{ at, trajectory, group, member, groupSize: times, purpose: 'fork', sampling, seed },
      order: plan.order + member,
      minVersion: policyVersion(0),
      tools: plan.tools ?? request.tools,
      deadlineMs: plan.deadlineMs,
    })
    for (const fact of prefix) facts.push({ ...fact, trajectory, ...('epoch' in fact ? { epoch: shared } : {}) })
    lineage.push({
      type: 'trajectory.forked',
      ...{ at, parent: request.trajectory, child: trajectory, turn, parentRun: plan.parentRun },
    })
  }
  return { facts, lineage }
}

type TurnFact = Extract<TrajectoryFact, { readonly turn: number }>

function sharedFacts({ parent, turn, toolResult }: TurnFork): readonly TurnFact[] {
  const before = factsIn(parent).filter((f): f is TurnFact => 'turn' in f && f.turn < turn)
  if (toolResult === undefined) return before
  const last = before.findLast((f): f is ToolCompleted => f.type === 'tool.completed' && f.turn === turn - 1)
  if (last === undefined) {
    throw refused('no_tool_result', `no tool result stands right before turn ${turn} of ${parent.id}`)
  }
  return before
    .filter(f => !(f.type === 'context.appended' && f.turn === turn - 1))
    .map(f => (f === last ? { ...last, text: toolResult, stdout: toolResult } : f))
}

const refused = (code: string, message: string) => replayError(code, message, '`troupe replay show T` prints its turns')
