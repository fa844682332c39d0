/**
 * The tokens of a trajectory at which the model was least sure (arXiv 2508.20722 §5.4 looks at the top 20 % by entropy).
 *
 * in   a trajectory's sampled tokens, a value for each        out  which are among the top of their trajectory; a table over many
 * The value is the entropy of the distribution that the token was drawn from, where the engine recorded it or a model gives it; else the surprisal of the
 * token that was drawn, −log p. Surprisal is what of the entropy a single draw shows: its mean is the entropy, but a sure
 * distribution that was drawn against stands out, and an unsure one that gave its likeliest token does not.
 */
import type { TrajectoryFact, TurnCompleted, TurnInterrupted } from '../../messages/facts'
import { factsIn, type Trajectory } from '../trajectories/trajectory'

export type Measure = 'entropy' | 'surprisal'

/** A sampled token, with where it stands. */
export interface SampledToken {
  readonly token: number
  readonly turn: number
  /** In its turn, attempts that were interrupted included. */
  readonly position: number
  /** nats */
  readonly value: number
}

interface TokenRow {
  readonly token: number
  /** How often it is among the top of its trajectory, and how often it was sampled at all. */
  readonly top: number
  readonly sampled: number
  readonly meanValue: number
  /** Of those at the top: right after a tool response. */
  readonly afterTool: number
}

export interface TopTable {
  readonly trajectories: number
  readonly sampled: number
  readonly top: number
  /** Sampled tokens right after a tool response, and those of them at the top. */
  readonly afterTool: number
  readonly topAfterTool: number
  readonly meanValue: number
  readonly meanTopValue: number
  /** Most frequent first. */
  readonly rows: readonly TokenRow[]
}

/** The first tokens of a turn that follows a tool's answer: where the paper finds reflection on it. */
export const afterToolTokens = 10

/** As the engine recorded them, in the order of sampling; undefined unless it did so for every token. */
export function recordedEntropies(trajectory: Trajectory): readonly number[] | undefined {
  const values: number[] = []
  for (const fact of factsIn(trajectory)) {
    if (!isSampled(fact)) continue
    const { tokens, entropies } = fact
    if (tokens.length !== (entropies?.length ?? 0)) return undefined
    values.push(...(entropies ?? []))
  }
  return values
}

/** In the order in which they were sampled. `values`: one a token; default the surprisal of each. */
export function sampledTokens(trajectory: Trajectory, values?: readonly number[]): readonly SampledToken[] {
  const tokens: SampledToken[] = []
  let turn = -1
  let position = 0
  for (const fact of factsIn(trajectory)) {
    if (!isSampled(fact)) continue
    const {
      tokens: ids,
      logprobs,
      turn: of,
    } = fact as Extract<TrajectoryFact, { tokens: Int32Array; logprobs: Float32Array }>
    if (of !== turn) position = 0
    turn = of
    ids.forEach((token, i) => {
      tokens.push({
        token,
        turn,
        position: position++,
        value: values?.[tokens.length] ?? Math.max(0, -(logprobs[i] ?? 0)),
      })
    })
  }
  return tokens
}

/** Indices of the `share` of highest value; of equal values the earlier. A token that was sure is never among them. */
export function topOf(tokens: readonly SampledToken[], share: number): ReadonlySet<number> {
  const most = Math.ceil(share * tokens.length)
  const order = tokens.map((_, i) => i).filter(i => tokens[i]!.value > 0)
  return new Set(order.sort((a, b) => tokens[b]!.value - tokens[a]!.value || a - b).slice(0, most))
}

const isAfterTool = ({ turn, position }: SampledToken): boolean => turn > 0 && position < afterToolTokens

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

/** Tells facts that carry sampled tokens; an interrupted turn carries those that came before its interruption. */
const isSampled = (fact: { readonly type: string }): fact is TurnCompleted | TurnInterrupted =>
  fact.type === 'turn.completed' || fact.type === 'turn.interrupted'
