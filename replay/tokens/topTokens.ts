/**
 * Finds the tokens of a trajectory at which the model was least sure (arXiv 2508.20722 §5.4 studies the top 20 % by
 * entropy).
 *
 * in   the pieces that a trajectory sampled, a value for each token
 * out  the tokens with the highest values of their trajectory; a table over many trajectories
 *
 * The value is the entropy of the distribution that the token was drawn from, if the engine recorded it or a model
 * computes it; else the surprisal of the drawn token, −log p. Surprisal estimates entropy from one draw: its mean is
 * the entropy, but an unlikely token from a sure distribution scores high, and the likeliest token of an unsure one
 * scores low.
 */
import type { SampledPiece } from './sampledPieces'

export type Measure = 'entropy' | 'surprisal'

/** A sampled token with its position in the trajectory. */
export interface SampledToken {
  readonly token: number
  /** Turn of the token, or number of its call in a captured session. */
  readonly turn: number
  /** Index of the token among all tokens sampled for its turn, those of interrupted attempts included. */
  readonly position: number
  /** True if the turn's context ends with a tool response. */
  readonly followsTool: boolean
  /** Entropy or surprisal of the token, nats. */
  readonly value: number
}

interface TokenRow {
  readonly token: number
  /** Number of the token's occurrences that are top tokens: among the highest values of their trajectory (`topOf`). */
  readonly top: number
  /** Number of all occurrences of the token. */
  readonly sampled: number
  /** Mean value of the occurrences that are top tokens, nats. */
  readonly meanValue: number
  /**
   * Number of the occurrences counted in `top` that are among the first `afterToolTokens` tokens after a tool response.
   */
  readonly afterTool: number
}

export interface TopTable {
  readonly trajectories: number
  readonly sampled: number
  readonly top: number
  /** Number of sampled tokens that are among the first `afterToolTokens` tokens of a turn after a tool response. */
  readonly afterTool: number
  /** Number of the tokens counted in `afterTool` that are top tokens of their trajectory. */
  readonly topAfterTool: number
  readonly meanValue: number
  readonly meanTopValue: number
  /** One row for each token with `top` above 0, the largest `top` first. */
  readonly rows: readonly TokenRow[]
}

/**
 * Number of tokens at the start of a turn that count as "after a tool response", if a tool response precedes the turn:
 * the paper finds that the model reflects on the response there.
 */
export const afterToolTokens = 10

/**
 * Entropies that the engine recorded, in the order of the pieces; undefined when it did not record one for every token.
 */
export function recordedEntropies(pieces: readonly SampledPiece[]): readonly number[] | undefined {
  const values: number[] = []
  for (const { tokens, entropies } of pieces) {
    if (tokens.length !== (entropies?.length ?? 0)) return undefined
    values.push(...(entropies ?? []))
  }
  return values
}

/**
 * Returns the sampled tokens in the order of the pieces. `values`: one for each token; default: each token's surprisal.
 */
export function sampledTokens(pieces: readonly SampledPiece[], values?: readonly number[]): readonly SampledToken[] {
  const tokens: SampledToken[] = []
  let last = -1
  let position = 0
  for (const { turn, followsTool, tokens: ids, logprobs } of pieces) {
    if (turn !== last) position = 0
    last = turn
    ids.forEach((token, i) => {
      const value = values?.[tokens.length] ?? Math.max(0, -(logprobs[i] ?? 0))
      tokens.push({ token, turn, position: position++, followsTool, value })
    })
  }
  return tokens
}

/**
 * Returns the indices of the tokens with the highest values: a `share` (0 to 1) of all tokens, rounded up. Ties go to
 * the earlier token. Tokens with value 0 are never included, so there may be fewer.
 */
export function topOf(tokens: readonly SampledToken[], share: number): ReadonlySet<number> {
  const most = Math.ceil(share * tokens.length)
  const order = tokens.map((_, i) => i).filter(i => tokens[i]!.value > 0)
  return new Set(order.sort((a, b) => tokens[b]!.value - tokens[a]!.value || a - b).slice(0, most))
}

const isAfterTool = ({ followsTool, position }: SampledToken): boolean => followsTool && position < afterToolTokens

export function topTable(all: readonly (readonly SampledToken[])[], share: number): TopTable {
  const rows = new Map<number, { -readonly [K in keyof TokenRow]: TokenRow[K] }>()
  const totals = { sampled: 0, top: 0, afterTool: 0, topAfterTool: 0, value: 0, topValue: 0 }
  for (const tokens of all) {
    const top = topOf(tokens, share)
    tokens.forEach((one, i) => {
      const row = rows.get(one.token) ?? { token: one.token, top: 0, sampled: 0, meanValue: 0, afterTool: 0 }
      rows.set(one.token, row)
      row.sampled++
      totals.sampled++
      totals.value += one.value
      if (isAfterTool(one)) totals.afterTool++
      if (!top.has(i)) return
      row.top++
      row.meanValue += (one.value - row.meanValue) / row.top
      totals.top++
      totals.topValue += one.value
      if (!isAfterTool(one)) return
      row.afterTool++
      totals.topAfterTool++
    })
  }
  const { value, topValue, ...counts } = totals
  return {
    trajectories: all.length,
    ...counts,
    meanValue: value / Math.max(1, counts.sampled),
    meanTopValue: topValue / Math.max(1, counts.top),
    rows: [...rows.values()]
      .filter(r => r.top > 0)
      .sort((a, b) => b.top - a.top || b.meanValue - a.meanValue || a.token - b.token),
  }
}
