/**
 * Resample on correct (RoC): which G of a group's 2G rollouts are trained on (DESIGN §6, arXiv 2508.20722 §2.2.3 eq. 4-5).
 *
 * in   a group's rewarded members, and how to choose        out  rejected with the reason | kept whole | exactly G kept
 * Invariant: members are taken by index, so the order in which they finished changes nothing; a seed decides the rest.
 * The result holds every number that the choice was made from.
 */

import { generatorName, pcg32, sampleUniform, sampleWeighted } from '../random'
import { type AdvantageScale, advantages } from './advantages'
import { type OverlongOptions, overlongPunishment } from './overlong'

export interface GroupMember {
  readonly member: number
  readonly reward: number
  readonly toolCalls: number
  /** Calls whose recorded status is not `ok`. */
  readonly toolErrors: number
  /** Pairs of answer tags in the response (`countAnswerTags`). */
  readonly answerTags: number
  /** Generations of the rollout. */
  readonly turns: number
  /** Tokens that the model sampled; `overlong` needs it. */
  readonly sampledTokens?: number
}

/** none: no RoC; G of the rewarded members, uniformly by seed, so that a run without RoC has batches of the same size. */
export type SelectionVariant = 'paper' | 'release' | 'none'

export interface SelectionOptions {
  readonly variant: SelectionVariant
  /** G. */
  readonly keep: number
  /** Seed of the draws, a uint32. `release` draws nothing. */
  readonly seed: number
  /** Floors of the two sides, default 2; 0 or -1 turns one off. */
  readonly minNegative?: number
  readonly minPositive?: number
  /** Reject a group whose rewards are all equal. Default true. */
  readonly rejectEqual?: boolean
  /** A reward above this is a positive, any other a negative. Default 0. Advantages are of the rewards themselves. */
  readonly positiveAbove?: number
  /** Added to a penalty before it is inverted. Default 1e-6. */
  readonly epsilon?: number
  /** Whether p_err and p_format are part of the penalty. Default true. */
  readonly errorRatio?: boolean
  readonly answerFormat?: boolean
  /** Default std. */
  readonly advantage?: AdvantageScale
  /** Added to the reward before the advantages are taken; who is positive is decided by the reward alone. */
  readonly overlong?: OverlongOptions
}

export interface WeighedMember {
  readonly member: number
  readonly reward: number
  readonly errorPenalty: number
  readonly formatPenalty: number
  /** The sum of those two that are switched on. */
  readonly penalty: number
}

export interface SelectedMember extends WeighedMember {
  /** Over the kept members. */
  readonly advantage: number
}

/** How many of each side there were and were kept, and the weights that positives were drawn with. */
export interface SelectionExplained {
  readonly variant: SelectionVariant
  readonly generator: string
  readonly seed: number
  readonly rewarded: number
  readonly meanReward: number
  readonly positives: number
  readonly negatives: number
  /** k1 and k0; null where the group was not divided (rejected, whole, variant none). */
  readonly keptPositives: number | null
  readonly keptNegatives: number | null
  /** By member index: sampling weight of the positives (paper), else null. */
  readonly members: readonly (WeighedMember & { readonly weight: number | null; readonly kept: boolean })[]
}

export type Selection =
  | {
      readonly kind: 'rejected'
      readonly reason: 'equal-rewards' | 'too-few-rewarded'
      readonly explain: SelectionExplained
    }
  | {
      readonly kind: 'whole'
      /** exactly-keep: there were G. below-floors: both sides would fall below their floor. */
      readonly reason: 'exactly-keep' | 'below-floors'
      readonly kept: readonly SelectedMember[]
      readonly dropped: readonly WeighedMember[]
      readonly explain: SelectionExplained
    }
  | {
      readonly kind: 'selected'
      readonly kept: readonly SelectedMember[]
      readonly dropped: readonly WeighedMember[]
      readonly explain: SelectionExplained
    }

/** p_err: 0.5 without tool calls, else failed calls / calls. */
export function errorPenalty(toolErrors: number, toolCalls: number): number {
  return toolCalls === 0 ? 0.5 : toolErrors / toolCalls
}

/** p_format: 1 without an answer tag, else min(1, (tags − 1) / turns). No turns at all count as no format. */
export function formatPenalty(answerTags: number, turns: number): number {
  return answerTags === 0 || turns === 0 ? 1 : Math.min(1, (answerTags - 1) / turns)
}

/** Numerator / denominator of non-negative integers, rounded to the nearest integer, halves to the even one. */
export function roundHalfEven(numerator: number, denominator: number): number {
  const floor = Math.floor(numerator / denominator)
  const twice = 2 * (numerator - floor * denominator)
  if (twice === denominator) return floor % 2 === 0 ? floor : floor + 1
  return twice < denominator ? floor : floor + 1
}

/**
 * k0 negatives and k1 positives of a group of `positives + negatives` ≥ G, k0 + k1 = G; null: both sides are below their
 * floor, keep the whole group. Floors are clipped to what is there; where both cannot be met, the positives' is.
 */
export function selectionCounts(
  variant: 'paper' | 'release',
  positives: number,
  negatives: number,
  keep: number,
  minPositive = 2,
  minNegative = 2,
): { readonly k0: number; readonly k1: number } | null {
  const rewarded = positives + negatives
  let k1 = variant === 'release' ? roundHalfEven(positives * keep, rewarded) : 0
  let k0 = variant === 'release' ? keep - k1 : Math.floor((negatives * keep) / rewarded)
  k1 = keep - k0
  if (k0 < minNegative && k1 < minPositive) return null
  const floor0 = Math.min(minNegative, negatives, keep)
  if (k0 < floor0) {
    k0 = floor0
    k1 = keep - k0
  }
  const floor1 = Math.min(minPositive, positives, keep)
  if (k1 < floor1) {
    k1 = floor1
    k0 = keep - k1
  }
  return { k0, k1 }
}

/**
 * Decides about one group. `members` are those with a reward, in any order.
 *
 * Draws: positives first, then negatives, both over ascending member index (random.ts says how).
 * Throws RangeError on a member twice, counts that contradict each other, a reward that is not finite, keep < 1.
 */
export function selectGroup(members: readonly GroupMember[], options: SelectionOptions): Selection {
  const keep = options.keep
  if (!Number.isInteger(keep) || keep < 1) throw new RangeError(`keep must be a positive integer, not ${keep}`)
  const all = weigh(members, options)
  const meanReward = all.length === 0 ? 0 : all.reduce((sum, one) => sum + one.reward, 0) / all.length
  const isPositive = (one: WeighedMember) => one.reward > (options.positiveAbove ?? 0)
  const positives = all.filter(isPositive)
  const negatives = all.filter(one => !isPositive(one))
  const epsilon = options.epsilon ?? 1e-6
  const weightOf = (one: WeighedMember): number => 1 / (one.penalty + epsilon)

  const explain = (kept: ReadonlySet<number>, counts: { k0: number; k1: number } | null): SelectionExplained => ({
    variant: options.variant,
    generator: generatorName,
    seed: options.seed,
    rewarded: all.length,
    meanReward,
    positives: positives.length,
    negatives: negatives.length,
    keptPositives: counts?.k1 ?? null,
    keptNegatives: counts?.k0 ?? null,
    members: all.map(one => ({
      ...one,
      weight: counts && options.variant === 'paper' && isPositive(one) ? weightOf(one) : null,
      kept: kept.has(one.member),
    })),
  })
  const divided = (chosen: readonly WeighedMember[], counts: { k0: number; k1: number } | null) => {
    const indices = new Set(chosen.map(one => one.member))
    return {
      kept: withAdvantages(
        all.filter(one => indices.has(one.member)),
        members,
        options,
      ),
      dropped: all.filter(one => !indices.has(one.member)),
      explain: explain(indices, counts),
    }
  }

  if (all.length < keep) return { kind: 'rejected', reason: 'too-few-rewarded', explain: explain(new Set(), null) }
  if ((options.rejectEqual ?? true) && all.every(one => one.reward === all[0]!.reward)) {
    return { kind: 'rejected', reason: 'equal-rewards', explain: explain(new Set(), null) }
  }
  if (all.length === keep) return { kind: 'whole', reason: 'exactly-keep', ...divided(all, null) }

  const random = pcg32(options.seed)
  if (options.variant === 'none') return { kind: 'selected', ...divided(sampleUniform(random, all, keep), null) }

  const floors = [options.minPositive ?? 2, options.minNegative ?? 2] as const
  const counts = selectionCounts(options.variant, positives.length, negatives.length, keep, ...floors)
  if (!counts) return { kind: 'whole', reason: 'below-floors', ...divided(all, null) }
  const chosen =
    options.variant === 'paper'
      ? [...sampleWeighted(random, positives, weightOf, counts.k1), ...sampleUniform(random, negatives, counts.k0)]
      : [...byPenalty(positives).slice(0, counts.k1), ...negatives.slice(0, counts.k0)]
  return { kind: 'selected', ...divided(chosen, counts) }
}

function weigh(members: readonly GroupMember[], options: SelectionOptions): readonly WeighedMember[] {
  const sorted = [...members].sort((a, b) => a.member - b.member)
  return sorted.map((one, i) => {
    if (sorted[i - 1]?.member === one.member) throw new RangeError(`member ${one.member} is there twice`)
    if (!Number.isFinite(one.reward)) throw new RangeError(`member ${one.member} has a reward of ${one.reward}`)
    for (const name of ['member', 'toolCalls', 'toolErrors', 'answerTags', 'turns'] as const) {
      if (!Number.isInteger(one[name]) || one[name] < 0) {
        throw new RangeError(`member ${one.member}: ${name} is ${one[name]}, not a count`)
      }
    }
    if (one.toolErrors > one.toolCalls) {
      throw new RangeError(`member ${one.member} has ${one.toolErrors} failed of ${one.toolCalls} calls`)
    }
    const error = errorPenalty(one.toolErrors, one.toolCalls)
    const format = formatPenalty(one.answerTags, one.turns)
    return {
      member: one.member,
      reward: one.reward,
      errorPenalty: error,
      formatPenalty: format,
      penalty: ((options.errorRatio ?? true) ? error : 0) + ((options.answerFormat ?? true) ? format : 0),
    }
  })
}

/** Lowest penalty first; equal ones by index, since the sort is stable. */
const byPenalty = (members: readonly WeighedMember[]): readonly WeighedMember[] =>
  [...members].sort((a, b) => a.penalty - b.penalty)

function withAdvantages(
  kept: readonly WeighedMember[],
  members: readonly GroupMember[],
  { advantage, overlong }: SelectionOptions,
): readonly SelectedMember[] {
  const lengths = new Map(members.map(({ member, sampledTokens = 0 }) => [member, sampledTokens]))
  const shaped = kept.map(({ member, reward }) =>
    overlong === undefined ? reward : reward + overlongPunishment(lengths.get(member)!, overlong),
  )
  const values = advantages(shaped, advantage)
  return kept.map((one, i) => ({ ...one, advantage: values[i]! }))
}
