/**
 * Exports a trajectory as one JSON object from which another program can recompute the trajectory's part of the loss.
 *
 * in   a trajectory, the run's configuration, the optimizer step that trained on the trajectory
 * out  messages, ids, masks, logprobs, versions, reward, settings of the loss
 * Invariant: ids and logprobs are the recorded ones, to the bit (a JSON number holds a float32 exactly). All per-token
 * arrays are as long as `tokens`; the loss covers the first `trainedTokens` of them, where the mask is 1.
 */

import { correctionOf, type RecipeConfig } from '../../config'
import { type AssembledSequence, assembleSequence, parseToolCalls } from '../../kernels'
import type { RolloutRequested, ToolCompleted, TurnCompleted } from '../../messages/facts'
import type { TrainedIn } from '../learning/learnerLog'
import { replayError } from '../replayError'
import { type ToolCallRecord, toolCallsOf } from '../trajectories/toolCalls'
import { factsIn, isCaptured, selectionOf, type Trajectory } from '../trajectories/trajectory'

export const exportFormat = 'troupe-trajectory'

/** A message in the shape of OpenAI's chat API. */
export interface OpenAiMessage {
  readonly role: 'system' | 'user' | 'assistant' | 'tool'
  readonly content: string
  readonly tool_calls?: readonly {
    readonly id: string
    readonly type: 'function'
    readonly function: { readonly name: string; readonly arguments: string }
  }[]
  readonly tool_call_id?: string
}

export interface ExportedTurn {
  readonly turn: number
  /** Range of the turn's sampled tokens in the trajectory's `tokens`: from `start` up to, not including, `end`. */
  readonly start: number
  readonly end: number
  readonly policyVersions: readonly number[]
  readonly engine: string
  readonly finish: string
  readonly text: string
  /**
   * Text that was appended to the context after the turn (such as tool results), and its number of ids in `tokens` from
   * `end` on; null when nothing followed the turn.
   */
  readonly appended: { readonly text: string; readonly tokens: number } | null
}

export interface ExportedTrajectory {
  readonly format: typeof exportFormat
  readonly version: 1
  readonly run: string
  readonly trajectory: string
  readonly group: string
  readonly member: number
  readonly groupSize: number
  readonly purpose: string
  /** Optimizer step that the rollout was requested for. */
  readonly step: number
  /** Step that trained on the trajectory, and the policy version that this step started from; null when no step did. */
  readonly trainedIn: { readonly step: number; readonly baseVersion: number } | null
  readonly task: RolloutRequested['task']
  readonly tools: readonly string[]
  readonly limits: RolloutRequested['limits']
  readonly sampling: RolloutRequested['sampling']
  readonly seed: number
  readonly messages: readonly OpenAiMessage[]
  readonly turns: readonly ExportedTurn[]
  readonly toolCalls: readonly ToolCallRecord[]
  readonly promptTokens: number
  readonly trainedTokens: number
  readonly tokens: readonly number[]
  readonly mask: readonly number[]
  readonly engineLogprobs: readonly number[]
  readonly policyVersions: readonly number[]
  readonly outcome: string
  readonly reason: string
  readonly reward: number | null
  readonly answer: string | null
  readonly how: string | null
  readonly selection: 'kept' | 'dropped' | 'rejected' | null
  readonly advantage: number | null
  readonly penalty: number | null
  readonly answerTags: number | null
  /** Recipe settings of the loss and of the optimizer step. */
  readonly loss: Readonly<Record<string, unknown>>
}

/** @throws TroupeError replay.captured for a captured session, whose rows `exportedRows` returns */
export function exportedTrajectory(
  run: string,
  trajectory: Trajectory,
  config: RecipeConfig,
  trainedIn: TrainedIn | null,
): ExportedTrajectory {
  refuseCapturedExport([trajectory])
  return {
    format: exportFormat,
    version: 1,
    ...rolloutFields(run, trajectory, config, trainedIn),
    tools: trajectory.request.tools,
    messages: messagesOf(trajectory),
    turns: turnsOf(trajectory),
    toolCalls: toolCallsOf(trajectory),
    ...tokenFields(assembleSequence(factsIn(trajectory))),
  }
}

/** @throws TroupeError replay.captured if a trajectory is a captured session: it has a tree of calls, and no turns */
export function refuseCapturedExport(all: readonly Trajectory[]): void {
  const captured = all.find(isCaptured)
  if (captured === undefined) return
  throw replayError(
    'captured',
    `${captured.id} is a session of an agent that called the gateway: it has a tree of calls, expected the turns of one conversation`,
    '`troupe replay export T --format jsonl` writes its training rows with all tokens and messages, `--format html --out FILE.html` a page of its calls',
  )
}

/** Fields about the rollout as a whole: its request, its end, its reward and selection, the settings of its loss. */
export function rolloutFields(run: string, trajectory: Trajectory, config: RecipeConfig, trainedIn: TrainedIn | null) {
  const { request, finished, reward } = trajectory
  const { clipLow, clipHigh, lossNorm, innerSteps, miniBatches, tisCap, maxGradNorm, learningRate } = config.train
  return {
    run,
    trajectory: request.trajectory,
    group: request.group,
    member: request.member,
    groupSize: request.groupSize,
    purpose: request.purpose,
    step: request.step,
    trainedIn,
    task: request.task,
    limits: request.limits,
    sampling: request.sampling,
    seed: request.seed,
    outcome: finished?.outcome ?? 'running',
    reason: finished?.reason ?? '',
    reward: reward?.reward ?? null,
    answer: reward?.answer ?? null,
    how: reward?.how ?? null,
    ...selectionOf(trajectory),
    answerTags: finished?.answerTags ?? null,
    loss: {
      kind: 'grpo',
      ...{ clipLow, clipHigh, lossNorm, innerSteps, miniBatches, tisCap, maxGradNorm, learningRate },
      correction: correctionOf(config.train) ?? null,
      temperature: config.rollout.sampling.temperature,
    },
  }
}

/** Returns per-token arrays of equal length; the numbers of prompt tokens, and of tokens up to the last trained one. */
export const tokenFields = (sequence: AssembledSequence) => ({
  promptTokens: sequence.promptTokens,
  trainedTokens: sequence.mask.lastIndexOf(1) + 1,
  tokens: [...sequence.tokens],
  mask: [...sequence.mask],
  engineLogprobs: [...sequence.engineLogprobs],
  policyVersions: [...sequence.versions],
})

function turnsOf(trajectory: Trajectory): readonly ExportedTurn[] {
  const turns: ExportedTurn[] = []
  let at = trajectory.request.tokens.length
  let start = at
  const versions = new Set<number>()
  for (const fact of factsIn(trajectory)) {
    switch (fact.type) {
      case 'turn.interrupted':
      case 'turn.completed':
        at += fact.tokens.length
        for (const s of fact.segments) versions.add(s.policyVersion)
        if (fact.type === 'turn.interrupted') break
        turns.push(turnOf(fact, start, at, [...versions]))
        versions.clear()
        break
      case 'context.appended': {
        const last = turns.pop()
        if (last !== undefined) turns.push({ ...last, appended: { text: fact.text, tokens: fact.tokens.length } })
        at += fact.tokens.length
        start = at
        break
      }
    }
  }
  return turns
}

const turnOf = (fact: TurnCompleted, start: number, end: number, policyVersions: readonly number[]): ExportedTurn => ({
  turn: fact.turn,
  start,
  end,
  policyVersions,
  engine: fact.engine,
  finish: fact.finish,
  text: fact.text,
  appended: null,
})

/**
 * Converts the conversation to OpenAI's shape: tool calls are cut out of the assistant's text. A call with a result is
 * followed by a `tool` message; a call without one, because the rollout ended first, is left out.
 */
function messagesOf(trajectory: Trajectory): readonly OpenAiMessage[] {
  const messages: OpenAiMessage[] = [...trajectory.request.task.messages]
  const results = new Map<number, ToolCompleted[]>()
  for (const fact of factsIn(trajectory)) {
    if (fact.type !== 'tool.completed') continue
    results.set(fact.turn, [...(results.get(fact.turn) ?? []), fact])
  }
  const asked = toolCallsOf(trajectory)
  trajectory.texts.forEach((text, turn) => {
    const answers = (results.get(turn) ?? []).sort((a, b) => a.call - b.call)
    const parsed = parseToolCalls(text).calls
    const content = withoutEnd(parsed.reduceRight((rest, c) => rest.slice(0, c.start) + rest.slice(c.end), text))
    const calls = answers.map(({ call, tool }) => {
      const raw = parsed[call]
      const args = asked.find(c => c.turn === turn && c.call === call)?.arguments ?? {}
      const written = raw?.kind === 'malformed' ? raw.raw : JSON.stringify(raw?.kind === 'call' ? raw.arguments : args)
      return { id: callId(turn, call), type: 'function' as const, function: { name: tool, arguments: written } }
    })
    messages.push({ role: 'assistant', content, ...(calls.length === 0 ? {} : { tool_calls: calls }) })
    for (const { call, text: shown } of answers) {
      messages.push({ role: 'tool', tool_call_id: callId(turn, call), content: shown })
    }
  })
  return messages
}

const callId = (turn: number, call: number) => `call_${turn}_${call}`

/** Removes a final end-of-turn token, which is not part of a message's content, and the white space around the text. */
export const withoutEnd = (text: string): string => text.replace(/(<\|im_end\|>|<\|endoftext\|>|<\/s>)\s*$/, '').trim()
