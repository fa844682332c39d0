/**
 * Makes the facts that a forked trajectory begins with: the parent's first turns, as they were recorded.
 *
 * in   a trajectory's accepted facts, the turn to fork at, what the fork changes        out  the facts of each fork
 * Invariant: shared turns are copied token by token; none is sampled or rendered again. If a tool result is edited, the
 * context that was rendered after it is left out; the coordinator has it rendered anew.
 */
import type { Sampling, ToolCompleted, TrajectoryFact, TrajectoryForked } from '../../messages/facts'
import { epoch, groupId, policyVersion, type RunId, trajectoryId } from '../../messages/ids'
import { deriveSeed } from '../../runtime/effects'
import { replayError } from '../replayError'
import { factsIn, isCaptured, type Trajectory } from '../trajectories/trajectory'

export interface TurnFork {
  readonly parent: Trajectory
  readonly parentRun: RunId
  /** First turn that is not shared (0-based): the fork copies the parent's turns before it. */
  readonly turn: number
  readonly times: number
  /**
   * Seed from which each fork's seed is derived, so that no fork repeats another fork or the parent. Default: the
   * parent's seed.
   */
  readonly seed?: number
  readonly temperature?: number
  /** Text that replaces the last tool result of turn `turn` − 1, the one before the fork's first own turn. */
  readonly toolResult?: string
  /** Names of the tools that the forks may call. Default: the parent's tools. */
  readonly tools?: readonly string[]
  readonly deadlineMs: number
  /** Start order (priority in the run) of the first fork; later forks get the following numbers. */
  readonly order: number
  readonly at: number
}

export interface ForkFacts {
  readonly facts: readonly TrajectoryFact[]
  readonly lineage: readonly TrajectoryForked[]
}

/** Number of finished turns of the parent; a fork must begin at one of them. */
export const turnsOf = (parent: Trajectory): number => parent.texts.length

/**
 * Epoch (offset of the owner's claim) of the shared facts, until `runForks` sets the offset of the claim that it
 * appends.
 */
const shared = epoch(0)

/**
 * Makes the facts that begin `times` forks of the parent: for each, its request and a copy of the parent's facts before
 * `turn`.
 * @throws TroupeError replay.captured for a session of the gateway; replay.no_turn when the parent has no finished turn
 * `turn`; replay.no_tool_result when a tool result is to be edited and turn `turn` − 1 has none
 */
export function forkFacts(plan: TurnFork): ForkFacts {
  const { parent, turn, times, at } = plan
  refuseCaptured(parent)
  if (turn >= turnsOf(parent)) {
    throw refused('no_turn', `${parent.id} has no turn ${turn}; its turns are 0 to ${turnsOf(parent) - 1}`)
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
      deadlineFrom: 'start',
    })
    for (const fact of prefix) facts.push({ ...fact, trajectory, ...('epoch' in fact ? { epoch: shared } : {}) })
    lineage.push({
      type: 'trajectory.forked',
      ...{ at, parent: request.trajectory, child: trajectory, turn, parentRun: plan.parentRun },
    })
  }
  return { facts, lineage }
}

/** @throws TroupeError replay.captured for a session of the gateway: its tools run in the agent's own program */
export function refuseCaptured(parent: Trajectory): void {
  if (!isCaptured(parent)) return
  const fork = `/troupe/v1/sessions/${encodeURIComponent(parent.id)}/fork`
  throw replayError(
    'captured',
    `${parent.id} cannot be forked here: it is a session of an agent that called the gateway, and only that agent has its tools`,
    `fork it at its gateway (npx troupe gateway --run RUN continues its run): curl -X POST URL${fork} -d '{"call_id": CALL}', and run the agent with the key that this prints (docs/gateway.md)`,
  )
}

type TurnFact = Extract<TrajectoryFact, { readonly turn: number }>

function sharedFacts({ parent, turn, toolResult }: TurnFork): readonly TurnFact[] {
  const before = factsIn(parent).filter((f): f is TurnFact => 'turn' in f && f.turn < turn)
  if (toolResult === undefined) return before
  const last = before.findLast((f): f is ToolCompleted => f.type === 'tool.completed' && f.turn === turn - 1)
  if (last === undefined) {
    throw refused('no_tool_result', `${parent.id} has no tool result directly before turn ${turn} that could be edited`)
  }
  return before
    .filter(f => !(f.type === 'context.appended' && f.turn === turn - 1))
    .map(f => (f === last ? { ...last, text: toolResult, stdout: toolResult } : f))
}

const refused = (code: string, message: string) =>
  replayError(code, message, '`troupe replay show T` prints the turns of trajectory T')
