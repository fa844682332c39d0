/**
 * Replays measured turns on an engine with given step times, and records the engine's work, for all its turns, while
 * each turn ran.
 *
 * in   turns of one engine with their start, time of first token, lengths and cached tokens; the most tokens of a step;
 *      the work of a step, and the duration of that work
 * out  per turn, the engine's work from the turn's start to its first token, and from there to its last
 * Turns start at their measured times. Cached tokens are as measured: memory is not simulated, and at least one token
 * is computed per turn.
 * Invariant: a step has all decoding sequences, and as many prompt tokens as then fit into `maxBatchTokens`, in the
 * measured order of first tokens. A turn that arrives during a step waits for that step's end.
 */
import type { PrefillShape } from './engineModel'

export interface ReplayedTurn {
  /** Time of the turn's request, ms. The turn first waits for the rest of the step that runs at this time. */
  readonly startedMs: number
  readonly firstTokenMs: number
  readonly contextTokens: number
  readonly cachedTokens: number
  readonly newTokens: number
}

/** Returns the work of one step: the amounts that the coefficients multiply to give its duration. */
export type StepWork = (decodes: number, kvTokens: number, chunks: readonly PrefillShape[]) => Float64Array

export interface ReplayedWork {
  /** Work from the turn's start to its first token, including the rest of the step that ran at its start. */
  readonly first: Float64Array
  /** Work from the turn's first token to its last. */
  readonly further: Float64Array
}

interface Sequence {
  readonly turn: number
  computed: number
  left: number
  /** Engine's total work up to the turn's start. */
  readonly before: Float64Array
  /** Engine's total work up to the turn's first token. */
  first: Float64Array
}

/**
 * Replays the turns of one engine. @param turns sorted by start; @returns the work per turn, in the same order
 */
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
