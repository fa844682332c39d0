/**
 * Makes logs for tests of the recorded engine: facts as coordinator and engine write them, with turns of the hash model
 * (hashModel.ts).
 */
import { createHash } from 'node:crypto'
import type { Message } from '../../messages'
import type { TurnAsked, TurnCompleted } from '../../messages/facts'
import { epoch, groupId, partsOf, policyVersion, runId, type TrajectoryId } from '../../messages/ids'
import { memoryBlobs } from '../../runtime/bus/blobs'
import { openMemoryBus } from '../../runtime/bus/memory/memoryBus'
import type { Journal } from '../../runtime/journal/journal'
import { openJournal } from '../../runtime/journal/openJournal'
import { plainSampling } from '../backends/engines/contract'
import { claim, completed, requested } from './facts'
import { drawAt, sampleAt, stateAfter, textOf } from './hashModel'

/** Opens a journal in memory that holds these facts. */
export async function recordedJournal(facts: readonly Message[], run = 'recorded'): Promise<Journal> {
  const journal = openJournal(await openMemoryBus(), memoryBlobs(), runId(run))
  await journal.create(1)
  await journal.append(facts)
  return journal
}

export const digestOf = (tokens: Int32Array) =>
  createHash('sha256')
    .update(Buffer.from(tokens.buffer, tokens.byteOffset, tokens.byteLength))
    .digest('hex')

export function sampled(weights: number, context: Int32Array, length: number, temperature: number, seed: number) {
  const tokens = new Int32Array(length)
  const logprobs = new Float32Array(length)
  let state = context.reduce((before, token) => stateAfter(weights, before, token), weights)
  for (let i = 0; i < length; i++) {
    const { token, logprob } = sampleAt(state, { temperature, topP: 1, topK: -1, minP: 0 }, drawAt(seed, i))
    tokens[i] = token
    logprobs[i] = logprob
    state = stateAfter(weights, state, token)
  }
  return { tokens, logprobs }
}

export const asked = (trajectory: TrajectoryId, context: Int32Array, change: Partial<TurnAsked> = {}): TurnAsked => ({
  ...{ type: 'turn.asked', at: 0, trajectory, turn: 0, attempt: 0, epoch: epoch(0), engine: null, seed: 1 },
  ...{ sampling: plainSampling, maxTokens: 400, contextTokens: context.length, contextDigest: digestOf(context) },
  ...change,
})

export const answered = (
  trajectory: TrajectoryId,
  { tokens, logprobs }: Pick<TurnCompleted, 'tokens' | 'logprobs'>,
  change: Partial<TurnCompleted> = {},
): TurnCompleted => ({
  ...completed({ trajectory, turn: 0, attempt: 0 } as never, textOf(tokens), {
    ...{ tokens, logprobs, finish: 'length' as const },
    segments: [{ policyVersion: policyVersion(1), start: 0, end: tokens.length }],
    ...change,
  }),
})

export const prompted = (trajectory: TrajectoryId, tokens: Int32Array) => {
  const { group, member } = partsOf(trajectory)
  return requested(groupId(group), member, { tokens })
}

export { claim }
