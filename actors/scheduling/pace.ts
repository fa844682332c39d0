/**
 * Finds engines that are far slower than the rest of the fleet, by the p99 of their turns' time per token.
 *
 * in   completed turns        out  a verdict on an engine each time it has completed `window` further turns
 * Invariant: an engine is slow only in comparison with other measured engines, so the last engine is never given up. Turns
 * that waited for new weights or a preemption, and turns of few tokens, do not count: they say nothing about the engine.
 */
import { quantile } from '../../kernels'
import type { TurnCompleted } from '../../messages/facts'
import type { EngineId } from '../../messages/ids'

interface Pace {
  /** Times per token of the turns since the last verdict, ms. */
  readonly times: readonly number[]
  /** p99 of the time per token at the last verdict, ms. */
  readonly p99Ms: number | undefined
}

export type EnginePaces = ReadonlyMap<EngineId, Pace>

export type PaceVerdict = { readonly isSlow: false } | { readonly isSlow: true; readonly reason: string }

/** Turns per verdict. */
const window = 100
/** Shorter turns consist mostly of their first and last token. */
const leastTokens = 16
/** Factor over the median of the other engines above which an engine is slow. */
const slowTimes = 4
/** Engines faster than this, in ms per token, are never slow: at such speeds a busy host alone makes the difference. */
const quickMs = 100

/** Counts a turn; returns the new paces and, when due, the verdict on its engine. */
export function paced(
  paces: EnginePaces,
  { engine, tokens, segments, preemptions, timing }: TurnCompleted,
): { readonly paces: EnginePaces; readonly verdict?: PaceVerdict } {
  const took = timing.endedAt - timing.firstTokenAt
  if (segments.length > 1 || preemptions > 0 || tokens.length < leastTokens || took <= 0) return { paces }
  const before = paces.get(engine)
  const times = [...(before?.times ?? []), took / (tokens.length - 1)]
  if (times.length < window) {
    return { paces: new Map(paces).set(engine, { times, p99Ms: before?.p99Ms }) }
  }
  const p99Ms = quantile(times, 0.99)
  const after = new Map(paces).set(engine, { times: [], p99Ms })
  return { paces: after, verdict: verdict(p99Ms, after, engine) }
}

function verdict(p99Ms: number, paces: EnginePaces, engine: EngineId): PaceVerdict {
  const others = [...paces].flatMap(([id, pace]) => (id === engine || pace.p99Ms === undefined ? [] : [pace.p99Ms]))
  const usual = quantile(others, 0.5)
  // A single engine has nothing to be compared with: a comparison with NaN is false.
  if (!(p99Ms > Math.max(quickMs, slowTimes * usual))) return { isSlow: false }
  return {
    isSlow: true,
    reason: `it is slow: p99 of its last ${window} turns ${Math.round(p99Ms)} ms a token, of the other engines ${Math.round(usual)} ms`,
  }
}

/** Forgets an engine that left or joined anew. */
export function unpaced(paces: EnginePaces, engine: EngineId): EnginePaces {
  if (!paces.has(engine)) return paces
  const after = new Map(paces)
  after.delete(engine)
  return after
}
