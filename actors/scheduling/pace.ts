/**
 * Which engines are far slower than the rest of the fleet, by the p99 of their turns' time a token.
 *
 * in   turns that were completed        out  an engine's verdict, each time `window` further turns of it are there
 * Invariant: an engine is slow only beside others that were measured too, so that the last one is never given up. Turns
 * that stood still for new weights or for a preemption, and those of few tokens, do not count: they say nothing of the engine.
 */
import { quantile } from '../../kernels'
import type { TurnCompleted } from '../../messages/facts'
import type { EngineId } from '../../messages/ids'

interface Pace {
  /** ms a token, of the turns since the last verdict. */
  readonly times: readonly number[]
  /** ms a token, at the last verdict. */
  readonly p99Ms: number | undefined
}

export type EnginePaces = ReadonlyMap<EngineId, Pace>

export type PaceVerdict = { readonly isSlow: false } | { readonly isSlow: true; readonly reason: string }

/** Turns a verdict. */
const window = 100
/** Shorter turns are mostly their first and last token. */
const leastTokens = 16
/** Times the median of the others. */
const slowTimes = 4
/** Nothing that is faster than this is slow, ms a token: at such speeds a busy host alone makes the difference. */
const quickMs = 100

/** The turn counted, and what is to be said of its engine now, if it is time. */
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
  // Alone, it has nobody to be compared with: a comparison with NaN is false.
  if (!(p99Ms > Math.max(quickMs, slowTimes * usual))) return { isSlow: false }
  return {
    isSlow: true,
    reason: `it is slow: p99 of its last ${window} turns ${Math.round(p99Ms)} ms a token, of the other engines ${Math.round(usual)} ms`,
  }
}

/** It left, or joined anew: what is known of it is over. */
export function unpaced(paces: EnginePaces, engine: EngineId): EnginePaces {
  if (!paces.has(engine)) return paces
  const after = new Map(paces)
  after.delete(engine)
  return after
}
