/**
 * Computes the next action of a rollout: a turn, its tool calls, the rendering of the calls' answers, the rollout's
 * end, or its reward.
 *
 * in   a rollout's state, the partition's epoch (offset of the owner's claim), the clock
 * out  facts, with the commands and requests that belong to them
 * Invariant: everything except the time follows from the rollout's state and the epoch. A coordinator and a chat both
 * use this file, so their facts are the same; the coordinator puts the commands on the bus, a chat carries them out
 * itself.
 */

import { submitTool } from '../../environments/tools/schemas'
import type { Command, ExecuteTool, GenerateTurn, VerifyAnswer } from '../../messages/commands'
import type {
  EnvironmentAt,
  Fact,
  RolloutFinished,
  RolloutRequested,
  ToolAsked,
  ToolCompleted,
  TurnAsked,
} from '../../messages/facts'
import type { Epoch, TrajectoryId } from '../../messages/ids'
import { concatArrays } from '../../runtime/concatArrays'
import { deriveSeed, type Effects } from '../../runtime/effects'
import { contextDigest } from '../../runtime/journal/contextDigest'
import { notebookTool } from '../../sandbox/tools/notebookTool'
import {
  actsOnFiles,
  answerTags,
  type Call,
  callTimeoutMs,
  cellsOf,
  type Ending,
  type Rollout,
  responseTokens,
  tokensLeft,
} from './rollout'

/**
 * Asks the renderer for the tokens of tool responses, which are appended to the context; `context.appended` answers it.
 */
export interface RenderRequest {
  readonly kind: 'render'
  readonly trajectory: TrajectoryId
  readonly turn: number
  readonly epoch: Epoch
  readonly responses: readonly string[]
}

/**
 * Asks for an agent that drives the rollout to its end. The agent's calls are recorded as facts; the last fact is
 * `rollout.finished`.
 */
export interface LeadRequest {
  readonly kind: 'lead'
  readonly request: RolloutRequested
  readonly epoch: Epoch
  /** Number that the new opening of the rollout's session gets. */
  readonly opening: number
  /** Number that the first call of the new opening gets. */
  readonly call: number
  /** Number that the first turn of the new opening gets. */
  readonly turn: number
}

/** Asks to end the agent of a rollout that is over. */
export interface DismissRequest {
  readonly kind: 'dismiss'
  readonly trajectory: TrajectoryId
}

export type AgentRequest = LeadRequest | DismissRequest

/** Request of an owner (coordinator and grouper of a partition) to its port: to render, to start or end an agent. */
export type OwnerRequest = RenderRequest | AgentRequest

export interface NextActions {
  facts: Fact[]
  commands: Command[]
  requests: OwnerRequest[]
}

/**
 * Adds the rollout's next actions to `out`. If `isDue` is given, a tool call without an answer is asked only if `isDue`
 * returns true for it; refused calls are answered in any case.
 */
export function addNextActions(
  rollout: Rollout,
  at: Epoch,
  fx: Effects,
  out: NextActions,
  isDue?: (call: Call) => boolean,
): void {
  switch (rollout.phase) {
    case 'turn': {
      if (rollout.led !== undefined) {
        const { opening, nextCall: call, nextTurn: turn } = rollout.led
        out.requests.push({ kind: 'lead', request: rollout.request, epoch: at, opening: opening + 1, call, turn })
        return
      }
      const turn = turnAsked(rollout, at, fx)
      if (turn === undefined) finish(rollout, outOfTokens, at, fx, out)
      else {
        out.facts.push(turn.asked)
        out.commands.push(turn.generate)
      }
      return
    }
    case 'tools':
      for (const [index, call] of rollout.calls.entries()) {
        if (call.response !== null) continue
        if (call.refused === null && isDue !== undefined && !isDue(call)) continue
        if (waitsForFiles(rollout, index)) continue
        const tool = toolAsked(rollout, index, at, fx)
        out.facts.push('refused' in tool ? tool.refused : tool.asked)
        if (!('refused' in tool)) out.commands.push(tool.execute)
      }
      return
    case 'append': {
      const { trajectory } = rollout.request
      const responses = rollout.calls.map(c => c.response ?? '')
      out.requests.push({ kind: 'render', trajectory, turn: rollout.turn, epoch: at, responses })
      return
    }
    case 'ended':
      finish(rollout, rollout.ending ?? { outcome: 'failed', reason: 'unknown' }, at, fx, out)
      return
    case 'finished':
      if (awaitsReward(rollout)) out.commands.push(answerVerify(rollout))
  }
}

/**
 * True for a call that acts on files while an earlier such call of its turn has no answer: it is asked after that
 * answer, since it works on the files that the earlier call leaves.
 */
const waitsForFiles = (rollout: Rollout, index: number): boolean =>
  actsOnFiles(rollout, rollout.calls[index]!) &&
  rollout.calls.slice(0, index).some(earlier => earlier.response === null && actsOnFiles(rollout, earlier))

/**
 * After the call at index `ended` was answered: adds the request for the next call of the turn that acts on files and
 * has no answer. Adds nothing if there is none, or if the call at `ended` does not act on files.
 */
export function addCallAfter(rollout: Rollout, ended: number, at: Epoch, fx: Effects, out: NextActions): void {
  if (!actsOnFiles(rollout, rollout.calls[ended]!)) return
  const index = rollout.calls.findIndex(call => call.response === null && actsOnFiles(rollout, call))
  if (index < 0) return
  const tool = toolAsked(rollout, index, at, fx)
  if ('refused' in tool) return
  out.facts.push(tool.asked)
  out.commands.push(tool.execute)
}

/**
 * Task environment and past calls, which tell a tool or the verifier the state of the files; {} without environment.
 */
function filesOf({ request, past }: Rollout): { readonly environment?: EnvironmentAt } {
  const { environment: task } = request.task
  if (task === undefined) return {}
  return { environment: { task, calls: past, timeoutMs: request.limits.toolTimeoutMs } }
}

export const awaitsReward = (rollout: Rollout): boolean =>
  !rollout.rewarded && rollout.ending?.outcome !== 'failed' && rollout.led?.isGraded !== false

/** Ending of a rollout whose token budget leaves no token for another turn. */
export const outOfTokens: Ending = { outcome: 'truncated', reason: 'tokens' }

/** Builds the next `turn.asked` and its command; undefined if the rollout's token budget is used up. */
export function turnAsked(
  rollout: Rollout,
  at: Epoch,
  fx: Pick<Effects, 'now'>,
): { readonly asked: TurnAsked; readonly generate: GenerateTurn } | undefined {
  const { request } = rollout
  const maxTokens = tokensLeft(rollout)
  if (maxTokens < 1) return undefined
  const context = concatArrays(Int32Array, [...rollout.context, ...rollout.partial])
  const common = {
    trajectory: request.trajectory,
    turn: rollout.turn,
    attempt: rollout.attempt + 1,
    epoch: at,
    engine: rollout.engine,
    // All attempts of a turn share one seed, so a deterministic engine samples the same tokens again.
    seed: deriveSeed(request.seed, 'turn', rollout.turn),
    sampling: request.sampling,
    maxTokens,
  }
  return {
    asked: {
      type: 'turn.asked',
      at: fx.now(),
      ...common,
      contextTokens: context.length,
      contextDigest: contextDigest(context),
    },
    generate: {
      type: 'turn.generate',
      ...common,
      context,
      resumedTokens: rollout.partialTokens,
      promptTokens: request.tokens.length,
      boundTokens: context.length + maxTokens,
      order: request.order,
      minVersion: request.minVersion,
    },
  }
}

/** Upper bound, in characters, on the instruction of a task's next step, which the answer of `submit` holds. */
const instructionChars = 64 * 1024
const endsStep = (rollout: Rollout, call: Call) => call.tool === submitTool.name && actsOnFiles(rollout, call)

/** Result fields of a tool call that was never executed. */
export const nothingRan = { stdout: '', stderr: '', exitCode: null, wallMs: 0, cpuMs: 0, executor: null } as const

/**
 * Builds the fact and the command of the next attempt of the tool call at `index`. For a call that cannot be executed
 * (malformed, unknown tool), builds its `tool.completed` instead.
 */
export function toolAsked(
  rollout: Rollout,
  index: number,
  at: Epoch,
  fx: Pick<Effects, 'now'>,
): { readonly asked: ToolAsked; readonly execute: ExecuteTool } | { readonly refused: ToolCompleted } {
  const { trajectory } = rollout.request
  const call = rollout.calls[index]!
  const place = { trajectory, turn: rollout.turn, call: index, attempt: call.attempt + 1, tool: call.tool }
  if (call.refused !== null) {
    const { status, text } = call.refused
    return { refused: { type: 'tool.completed', at: fx.now(), ...place, status, text, ...nothingRan } }
  }
  const asked = { ...place, epoch: at, arguments: call.arguments }
  return {
    asked: { type: 'tool.asked', at: fx.now(), ...asked },
    execute: executeTool(rollout, index, place.attempt, at),
  }
}

/** Builds the command that asks for the tool call at `index` under `attempt`. */
export function executeTool(rollout: Rollout, index: number, attempt: number, at: Epoch): ExecuteTool {
  const { trajectory, limits } = rollout.request
  const call = rollout.calls[index]!
  const isNotebook = call.tool === notebookTool.name
  return {
    ...{ type: 'tool.execute', trajectory, turn: rollout.turn, call: index, attempt, epoch: at },
    ...{ tool: call.tool, arguments: call.arguments, timeoutMs: callTimeoutMs(rollout, call) },
    responseChars: endsStep(rollout, call) ? instructionChars : limits.toolResponseChars,
    ...(isNotebook ? { cells: [...rollout.cells, ...cellsOf(rollout.calls.slice(0, index))] } : {}),
    ...(actsOnFiles(rollout, call) ? filesOf(rollout) : {}),
  }
}

export const rolloutFinished = (
  rollout: Rollout,
  { outcome, reason }: Ending,
  at: Epoch,
  fx: Pick<Effects, 'now'>,
): RolloutFinished => ({
  type: 'rollout.finished',
  at: fx.now(),
  trajectory: rollout.request.trajectory,
  epoch: at,
  outcome,
  reason,
  turns: rollout.texts.length,
  sampledTokens: rollout.sampledTokens,
  responseTokens: responseTokens(rollout),
  toolCalls: rollout.toolCalls,
  toolErrors: rollout.toolErrors,
  answerTags: answerTags(rollout),
})

export const answerVerify = (rollout: Rollout): VerifyAnswer => ({
  type: 'answer.verify',
  trajectory: rollout.request.trajectory,
  attempt: rollout.verifyAttempt,
  reward: rollout.request.task.reward,
  truth: rollout.request.task.truth,
  response: (rollout.led?.graded ?? rollout.texts).join('\n'),
  task: rollout.request.task,
  ...filesOf(rollout),
})

function finish(rollout: Rollout, ending: Ending, at: Epoch, fx: Effects, out: NextActions): void {
  const { trajectory } = rollout.request
  out.facts.push(rolloutFinished(rollout, ending, at, fx))
  out.commands.push({ type: 'trajectory.release', trajectory, outcome: ending.outcome })
  const isOut = rollout.calls.some(c => c.response === null && c.attempt >= 0)
  if (isOut) out.commands.push({ type: 'tool.cancel', trajectory })
  if (rollout.led !== undefined) out.requests.push({ kind: 'dismiss', trajectory })
  if (ending.outcome !== 'failed' && rollout.led?.isGraded !== false) out.commands.push(answerVerify(rollout))
}
