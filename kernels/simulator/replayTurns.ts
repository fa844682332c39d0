/**
 * Turns once more on an engine of given step times, each beginning when it did: what was computed in each one's time.
 *
 * in   turns of one engine with their beginning and lengths, how long a step lasts        out  for each the work in its two spans
 * Invariant: a step has all sequences that decode and what fits of the prompts, in the order in which they really gave their
 * first tokens; a turn that comes in the middle of a step waits for its end. What was in the cache is as it was measured:
 * memory is not simulated; at least a token is computed.
 */
import type { PrefillShape } from './engineModel'

export interface ReplayedTurn {
  /** When the engine was given it; the step that was under way is part of its wait. */
  readonly startedMs: number
  readonly firstTokenMs: number
  readonly contextTokens: number
  readonly cachedTokens: number
  readonly newTokens: number
}

/** What one step computes, as the numbers that its time is a sum over. */
export type StepWork = (decodes: number, kvTokens: number, chunks: readonly PrefillShape[]) => Float64Array

export interface ReplayedWork {
  /** From its beginning to its first token, with the rest of the step that was under way. */
  readonly first: Float64Array
  /** From that to its last token. */
  readonly further: Float64Array
}

interface Sequence {
  readonly turn: number
  computed: number
  left: number
  /** All work up to its beginning, and up to its first token. */
  readonly before: Float64Array
  first: Float64Array
}

/** @param turns in the order of their beginning; @returns [turn] */
export function replayTurns(
  turns: readonly ReplayedTurn[],
  maxBatchTokens: number,
  workOf: StepWork,
  msOf: (work: Float64Array) => number,
): readonly ReplayedWork[] {
  const done = new Array<ReplayedWork>(turns.length)
  let prompts: Sequence[] = []
  let decodes: Sequence[] = []
  let next = 0
  let nowMs = 0
  let total = workOf(0, 0, []).fill(0)
  let last = { ms: 0, work: total }
  while (next < turns.length || prompts.length + decodes.length > 0) {
    if (prompts.length + decodes.length === 0 && turns[next]!.startedMs > nowMs) nowMs = turns[next]!.startedMs
    for (; next < turns.length && turns[next]!.startedMs <= nowMs; next++) {
      const { startedMs, firstTokenMs, contextTokens, cachedTokens, newTokens } = turns[next]!
      const share = last.ms > 0 ? Math.min(1, (nowMs - startedMs) / last.ms) : 0
      const before = total.map((sum, i) => sum - share * last.work[i]!)
      const at = prompts.findIndex(one => turns[one.turn]!.firstTokenMs > firstTokenMs)
      const one = {
        turn: next,
        computed: Math.min(cachedTokens, contextTokens - 1),
        left: newTokens,
        before,
        first: total,
      }
      prompts.splice(at < 0 ? prompts.length : at, 0, one)
    }
    const chunks: PrefillShape[] = []
    let budget = maxBatchTokens - decodes.length
    for (const { turn, computed } of prompts) {
      const tokens = Math.min(budget, turns[turn]!.contextTokens - computed)
      if (tokens <= 0) break
      chunks.push({ cachedTokens: computed, tokens })
      budget -= tokens
    }
    let kvTokens = 0
    for (const one of decodes) kvTokens += ++one.computed
    const work = workOf(decodes.length, kvTokens, chunks)
    last = { ms: msOf(work), work }
    nowMs += last.ms
    total = total.map((sum, i) => sum + work[i]!)
    const end = total
    const goesOn = (one: Sequence) => {
      if (--one.left > 0) return true
      done[one.turn] = { first: minus(one.first, one.before), further: minus(end, one.first) }
      return false
    }
    decodes = decodes.filter(goesOn)
    for (const [k, { tokens }] of chunks.entries()) prompts[k]!.computed += tokens
    const begun = prompts.filter(({ turn, computed }) => computed >= turns[turn]!.contextTokens)
    if (begun.length === 0) continue
    prompts = prompts.filter(one => !begun.includes(one))
    for (const one of begun) one.first = end
    decodes.push(...begun.filter(goesOn))
  }
  return done
}

const minus = (a: Float64Array, b: Float64Array): Float64Array => a.map((x, i) => x - b[i]!)
