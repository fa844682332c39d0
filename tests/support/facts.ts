/** Makes facts with valid default values; a test overrides the fields that it is about. */
import type { CurriculumPlan } from '../../actors/curriculum/curriculum'
import type { Message } from '../../messages'
import type { GenerateTurn } from '../../messages/commands'
import type { Fact, PartitionClaimed, RolloutRequested, TurnCompleted, WeightsPublished } from '../../messages/facts'
import { engineId, groupId, policyVersion, runId, taskId, trajectoryId } from '../../messages/ids'

export const toolName = 'execute_python_code_with_standard_io'

export const ofType = <T extends Fact['type']>(messages: readonly Message[], type: T) =>
  messages.filter((m): m is Extract<Fact, { type: T }> => m.type === type)

export const published = (version: number): WeightsPublished => ({
  ...{ type: 'weights.published', at: 0, version: policyVersion(version), step: version },
  ...{ url: 'file:///w', digest: 'd', bytes: 1 },
})

/** Plan of two steps of two groups each, without evaluations. */
export const plan: CurriculumPlan = {
  run: runId('r'),
  steps: 2,
  groupsPerStep: 2,
  refillShare: 1,
  maxStaleness: 0,
  evaluation: { problems: 0, every: 0 },
  maxRejectedSteps: 3,
  learns: true,
}

export const claim = (owner = 'a'): PartitionClaimed => ({ type: 'partition.claimed', at: 0, partition: 0, owner })

export function requested(group: string, member: number, change: Partial<RolloutRequested> = {}): RolloutRequested {
  const id = groupId(group)
  return {
    type: 'rollout.requested',
    at: 1000,
    trajectory: trajectoryId(id, member),
    group: id,
    member,
    groupSize: 4,
    purpose: 'train',
    step: 1,
    order: member,
    task: { id: taskId('t'), messages: [{ role: 'user', content: '2+2?' }], truth: '4', reward: 'math' },
    tokens: Int32Array.of(1, 2, 3),
    tools: [toolName],
    limits: {
      contextTokens: 512,
      responseTokens: 400,
      turns: 4,
      callsPerTurn: 2,
      toolTimeoutMs: 4000,
      toolResponseChars: 500,
    },
    sampling: { temperature: 1, topP: 1, topK: 0, minP: 0, stopTokens: [0] },
    seed: 7,
    minVersion: policyVersion(0),
    deadlineMs: 60_000,
    ...change,
  }
}

export const toolCall = (code: string) =>
  `<tool_call>\n${JSON.stringify({ name: toolName, arguments: { code, input: '' } })}\n</tool_call>`
export const answer = (text: string) => `<answer>\\boxed{${text}}</answer>`

export function completed(ask: GenerateTurn, text: string, change: Partial<TurnCompleted> = {}): TurnCompleted {
  const tokens = change.tokens ?? Int32Array.from({ length: 5 }, (_, i) => i + 10 * ask.turn)
  return {
    type: 'turn.completed',
    at: 1000,
    trajectory: ask.trajectory,
    turn: ask.turn,
    attempt: ask.attempt,
    engine: engineId('e0'),
    tokens,
    logprobs: new Float32Array(tokens.length).fill(-0.5),
    text,
    finish: 'stop',
    segments: [{ policyVersion: policyVersion(0), start: 0, end: tokens.length }],
    cachedTokens: 0,
    preemptions: 0,
    timing: { queuedAt: 0, startedAt: 0, firstTokenAt: 0, endedAt: 0 },
    ...change,
  }
}
