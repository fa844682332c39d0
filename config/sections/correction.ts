/**
 * The recipe's correction for tokens that were not sampled from π_old, the trainer's policy before the step: π_engine,
 * which sampled them, differs by kernels and precision and, with `rollout.maxStaleness`, by the age of its weights.
 *
 * in   `train.correction`, or the older fields `train.tisCap` and `train.icepop`
 * out  one correction with its bounds, or none
 * Invariant: the three fields name the same mechanism, importance_weight.py; a recipe names at most one of them.
 */
import { z } from 'zod'

/** Lower end of a band around 1 of the ratio π_old / π_engine. */
const low = z.number().nonnegative().lt(1)
/** Upper end of a band around 1 of the ratio π_old / π_engine. */
const high = z.number().gt(1)

/** IcePop's band. Source: arXiv 2510.18855 §3. */
export const icepopBand = { low: low.default(0.5), high: high.default(5) }

/**
 * Sources: Yao et al. 2025 (truncated), Liu et al. 2025 (masked, geometric-mask), arXiv 2510.18855 (icepop), 1707.06347
 * eq. 6 with the sampling policy as π_old (engine-logprobs).
 */
export const correctionSection = z.discriminatedUnion('kind', [
  /** Truncated importance sampling: each token is weighted by min(π_old / π_engine, cap). */
  z.strictObject({ kind: z.literal('truncated'), cap: z.number().positive().default(2) }),
  /** Masked importance sampling: each token is weighted by π_old / π_engine inside the band, by 0 outside. */
  z.strictObject({ kind: z.literal('masked'), low: low.default(0.5), high: high.default(2) }),
  /** Masked importance sampling with IcePop's wider band. */
  z.strictObject({ kind: z.literal('icepop'), ...icepopBand }),
  /**
   * A sequence is left out if the geometric mean of its tokens' π_old / π_engine is outside the band; the default band
   * allows a drift of 1 % a token. Other sequences have the weight 1.
   */
  z.strictObject({ kind: z.literal('geometric-mask'), low: low.default(0.99), high: high.default(1.01) }),
  /** The engine's logprobs replace those of π_old in the clipped ratio; the trainer then does not compute π_old. */
  z.strictObject({ kind: z.literal('engine-logprobs') }),
])

export type Correction = z.output<typeof correctionSection>

interface Named {
  readonly tisCap: number
  readonly icepop?: { readonly low: number; readonly high: number } | undefined
  readonly correction?: Correction | undefined
}

/** Returns the recipe's correction, whichever field names it; undefined if none does. */
export function correctionOf({ correction, tisCap, icepop }: Named): Correction | undefined {
  if (correction !== undefined) return correction
  if (tisCap > 0) return { kind: 'truncated', cap: tisCap }
  return icepop === undefined ? undefined : { kind: 'icepop', ...icepop }
}

/** Lists the fields that contradict `train.correction`, each with the reason. */
export function correctionFaults({
  correction,
  tisCap,
  icepop,
  uncorrected,
}: Named & { readonly uncorrected: boolean }): readonly (readonly [field: string, why: string])[] {
  const old = tisCap > 0 ? 'tisCap' : icepop === undefined ? undefined : 'icepop'
  if (uncorrected && (correction !== undefined || old !== undefined))
    return [['uncorrected', `train.${old ?? 'correction'} names a correction: remove one of the two`]]
  if (correction === undefined || old === undefined) return []
  const why =
    correction.kind === 'engine-logprobs'
      ? `with engine-logprobs π_old is π_engine, so the ratio that train.${old} weights tokens by is 1: remove one of the two`
      : `train.${old} weights tokens by the same ratio as ${correction.kind}: remove one of the two`
  return [['correction', why]]
}
