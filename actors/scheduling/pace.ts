/**
 * Finds engines that are far slower than the other engines, by the p99 over turns of the time per token after the
 * first.
 *
 * in   completed turns        out  a verdict on an engine each time it has completed `window` further measured turns
 * Invariant: an engine is slow only in comparison with other measured engines, so the last engine is never removed.
 * Turns in which the weights changed or the engine preempted the turn, and turns of fewer than `leastTokens` tokens,
 * are not measured: their time depends on more than the engine's speed.
 */
import { quantile } from '../../kernels'
import type { TurnCompleted } from '../../messages/facts'
import type { EngineId } from '../../messages/ids'

interface Pace {
  /** Milliseconds per token of each measured turn since the last verdict. */
  readonly times: readonly number[]
  /** p99 of the milliseconds per token at the last verdict; undefined before the first. */
  readonly p99Ms: number | undefined
}

export type EnginePaces = ReadonlyMap<EngineId, Pace>

export type PaceVerdict = { readonly isSlow: false } | { readonly isSlow: true; readonly reason: string }

/** Number of measured turns of an engine after which a verdict on it is due. */
const window = 100
/** Lower bound on the tokens of a measured turn; a shorter turn has too few tokens for a reliable time per token. */
const leastTokens = 16
/** Factor: an engine is slow if its p99 is above this many times the median p99 of the other engines. */
const slowTimes = 4
/**
 * Milliseconds per token: an engine with this p99 or less is never slow, since a busy host can explain the difference.
 */
const quickMs = 100

/** Counts a turn; returns the new measurements and, when due, the verdict on the turn's engine. */
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
  // Without other engines the median is NaN, the comparison is false, and the engine is not slow.
  if (!(p99Ms > Math.max(quickMs, slowTimes * usual))) return { isSlow: false }
  return {
    isSlow: true,
    reason: `it is slow: the p99 of its last ${window} turns is ${Math.round(p99Ms)} ms per token, the median p99 of the other engines ${Math.round(usual)} ms`,
  }
}

/** Drops the measurements of an engine that left or joined again. */
export function unpaced(paces: EnginePaces, engine: EngineId): EnginePaces {
  if (!paces.has(engine)) return paces
  const after = new Map(paces)
  after.delete(engine)
  return after
}
