/**
 * Finds the first token at which two trajectories differ.
 *
 * in   two trajectories, of one run or of two
 * out  the length of their common prefix, and each side of the difference
 * Invariant: token ids are compared as they were recorded; nothing is tokenised, and texts are not compared.
 */
import { type AssembledSequence, assembleSequence, type CallTree, callRows, callTree, pathTo } from '../../kernels'
import type { CallFact } from '../../messages/facts'
import { replayError } from '../replayError'
import { callFactsIn, factsIn, selectionOf, type Trajectory } from './trajectory'

/** Upper bound on the tokens in `window` before the difference, and on those from the difference on. */
export const windowTokens = 8

export interface TokenDifference {
  /** Number of equal tokens at the start of both sequences. */
  readonly common: number
  readonly a: TokenSide
  readonly b: TokenSide
}

export interface TokenSide {
  /** Number of tokens of the trajectory's whole sequence, prompt included. */
  readonly tokens: number
  /**
   * Part of the sequence that the difference is in: `prompt`, `turn N`, or `tool response after turn N`; for a captured
   * session `messages of call N` or `answer of call N`; `end`: the sequence ended there.
   */
  readonly where: string
  /** Token id at the difference; null when the sequence ended there. */
  readonly token: number | null
  /** Natural-log probability of the token at the difference; null when that token was not sampled. */
  readonly logprob: number | null
  readonly policyVersion: number | null
  /** Token ids around the difference: up to 8 before it, and up to 8 from it on. */
  readonly window: readonly number[]
}

/**
 * Compares the token ids of two trajectories. Returns their first difference; null when all ids are equal.
 * @throws TroupeError replay.no_answer for a captured session in which no call that is trained on by default has an
 * answer that its client received
 */
export function diffTrajectories(a: Trajectory, b: Trajectory): TokenDifference | null {
  const [left, right] = [sequenceOf(a), sequenceOf(b)]
  const shorter = Math.min(left.tokens.length, right.tokens.length)
  let common = 0
  while (common < shorter && left.tokens[common] === right.tokens[common]) common++
  if (common === left.tokens.length && common === right.tokens.length) return null
  return { common, a: sideOf(left, common), b: sideOf(right, common) }
}

/** Describes how a trajectory ended, as one flat object. */
export const endingOf = (trajectory: Trajectory) => ({
  trajectory: trajectory.id,
  outcome: trajectory.finished?.outcome ?? 'running',
  turns: trajectory.texts.length,
  toolCalls: trajectory.finished?.toolCalls ?? null,
  toolErrors: trajectory.finished?.toolErrors ?? null,
  reward: trajectory.reward?.reward ?? null,
  ...selectionOf(trajectory),
})

interface Span {
  /** Index of the first token after the span. */
  readonly end: number
  readonly where: string
}

type Sequence = AssembledSequence & { readonly spans: readonly Span[] }

function sequenceOf(trajectory: Trajectory): Sequence {
  const calls = callFactsIn(trajectory)
  if (calls.length > 0) return capturedSequence(trajectory, calls)
  return { ...assembleSequence(factsIn(trajectory)), spans: spansOf(trajectory) }
}

/** Sequence of a captured session: its conversation with the most sampled tokens. */
function capturedSequence({ id }: Trajectory, facts: readonly CallFact[]): Sequence {
  const tree = callTree(facts)
  const [longest] = [...callRows(tree)].sort((a, b) => b.sampledTokens - a.sampledTokens)
  if (longest === undefined)
    throw replayError(
      'no_answer',
      `session ${id} has no call that is trained on and whose answer its client received, so no tokens to compare`,
      '`troupe replay show` prints its calls',
    )
  return { ...longest, spans: spansOfCalls(tree, longest.leaf) }
}

function spansOfCalls(tree: CallTree, leaf: number): readonly Span[] {
  let end = 0
  return pathTo(tree, leaf).flatMap(({ started, finished }) => {
    const messages = { end: end + started.tokens.length, where: `messages of call ${started.call}` }
    end = messages.end + (finished?.tokens.length ?? 0)
    return [messages, { end, where: `answer of call ${started.call}` }]
  })
}

/**
 * Returns the parts of the sequence in order: the prompt, a turn's sampled tokens (or those of an interrupted attempt),
 * a tool response.
 */
function spansOf(trajectory: Trajectory): readonly Span[] {
  const spans: Span[] = []
  let end = 0
  for (const fact of factsIn(trajectory)) {
    if (!('tokens' in fact)) continue
    end += fact.tokens.length
    const where =
      fact.type === 'rollout.requested'
        ? 'prompt'
        : fact.type === 'context.appended'
          ? `tool response after turn ${fact.turn}`
          : `turn ${fact.turn}`
    spans.push({ end, where })
  }
  return spans
}

function sideOf({ tokens, mask, engineLogprobs, versions, spans }: Sequence, at: number): TokenSide {
  const isThere = at < tokens.length
  const sampled = isThere && mask[at] === 1
  return {
    tokens: tokens.length,
    where: isThere ? (spans.find(s => at < s.end)?.where ?? 'end') : 'end',
    token: isThere ? tokens[at]! : null,
    logprob: sampled ? engineLogprobs[at]! : null,
    policyVersion: sampled ? versions[at]! : null,
    window: [...tokens.slice(Math.max(0, at - windowTokens), at + windowTokens)],
  }
}
