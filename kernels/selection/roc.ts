/**
 * Resamples on correct (RoC): chooses G of a group's 2G rollouts for training (arXiv 2508.20722 §2.2.3 eq. 4-5).
 *
 * in   a group's rewarded members, and options        out  rejected with a reason | kept whole | exactly G kept
 * Invariant: the choice depends on the members' indices, rewards and penalties and on the seed, never on the order in
 * which members finished. The result contains the seed, the generator's name, and every member's reward, penalties and
 * sampling weight (null where none was used).
 */

import { generatorName, pcg32, sampleUniform, sampleWeighted } from '../random'
import { type AdvantageScale, advantages } from './advantages'
import { type OverlongOptions, overlongPunishment } from './overlong'

export interface GroupMember {
  readonly member: number
  readonly reward: number
  readonly toolCalls: number
  /** Number of tool calls whose recorded status is not `ok`. */
  readonly toolErrors: number
  /** Number of pairs of answer tags in the response (`countAnswerTags`). */
  readonly answerTags: number
  /** Number of generations in the rollout. */
  readonly turns: number
  /** Number of tokens after the prompt, those of tool responses included. The option `overlong` needs it. Default 0. */
  readonly responseTokens?: number
}

/**
 * Method of selection. paper: as in the paper. release: as in the paper's released code. none: G of the rewarded
 * members, uniformly by seed, so that a run without RoC has batches of the same size. all: every rewarded member, as in
 * the released code without down-sampling.
 */
export type SelectionVariant = 'paper' | 'release' | 'none' | 'all'

export interface SelectionOptions {
  readonly variant: SelectionVariant
  /**
   * Number of members to keep (G in the paper). The variant `all` ignores it: it keeps all, and rejects fewer than two.
   */
  readonly keep: number
  /** Seed of the random draws, a uint32. The variants `release` and `all` draw nothing. */
  readonly seed: number
  /** Minimum number of negatives to keep. Default 2; 0 or -1 turns this floor off. */
  readonly minNegative?: number
  /** Minimum number of positives to keep. Default 2; 0 or -1 turns this floor off. */
  readonly minPositive?: number
  /** true (default): reject a group whose rewards are all equal. */
  readonly rejectEqual?: boolean
  /**
   * Threshold of the reward: a member above it is a positive, any other a negative. Default 0. Advantages use the
   * rewards themselves.
   */
  readonly positiveAbove?: number
  /** Number added to a positive's penalty before it is inverted to a sampling weight. Default 1e-6. */
  readonly epsilon?: number
  /** true (default): include p_err (`errorPenalty`) in the penalty. */
  readonly errorRatio?: boolean
  /** true (default): include p_format (`formatPenalty`) in the penalty. */
  readonly answerFormat?: boolean
  /** Divisor of the advantages. Default std. */
  readonly advantage?: AdvantageScale
  /**
   * Punishment of long rollouts, added to the reward for the advantages. Only the reward without it decides which
   * members are positives.
   */
  readonly overlong?: OverlongOptions
}

export interface WeighedMember {
  readonly member: number
  readonly reward: number
  readonly errorPenalty: number
  readonly formatPenalty: number
  /** Sum of `errorPenalty` (if the option `errorRatio` is true) and `formatPenalty` (if `answerFormat` is true). */
  readonly penalty: number
}

export interface SelectedMember extends WeighedMember {
  /** Advantage of the member relative to the kept members. */
  readonly advantage: number
}

/**
 * Numbers that explain a selection: how many positives and negatives there were and were kept, and the sampling weights
 * of the positives.
 */
export interface SelectionExplained {
  readonly variant: SelectionVariant
  readonly generator: string
  readonly seed: number
  readonly rewarded: number
  readonly meanReward: number
  readonly positives: number
  readonly negatives: number
  /** Number of positives to keep (k1); null if the group was not divided (rejected, whole, variant none or all). */
  readonly keptPositives: number | null
  /** Number of negatives to keep (k0); null if the group was not divided. */
  readonly keptNegatives: number | null
  /** Members by index. `weight` is the sampling weight of a positive (variant paper, divided group), else null. */
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
      /**
       * Reason to keep the whole group. exactly-keep: exactly G members were rewarded. below-floors: positives and
       * negatives would both fall below their floor. all: the variant says so.
       */
      readonly reason: 'exactly-keep' | 'below-floors' | 'all'
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

/** Returns p_err: 0.5 without tool calls, else failed calls / calls. */
export function errorPenalty(toolErrors: number, toolCalls: number): number {
  return toolCalls === 0 ? 0.5 : toolErrors / toolCalls
}

/** Returns p_format: 1 without answer tags or without turns, else min(1, (tags − 1) / turns). */
export function formatPenalty(answerTags: number, turns: number): number {
  return answerTags === 0 || turns === 0 ? 1 : Math.min(1, (answerTags - 1) / turns)
}

/** Divides non-negative integers and rounds to the nearest integer, halves to even. */
export function roundHalfEven(numerator: number, denominator: number): number {
  const floor = Math.floor(numerator / denominator)
  const twice = 2 * (numerator - floor * denominator)
  if (twice === denominator) return floor % 2 === 0 ? floor : floor + 1
  return twice < denominator ? floor : floor + 1
}

/**
 * Returns how many negatives (k0) and positives (k1) to keep, k0 + k1 = G, of a group with positives + negatives ≥ G;
 * null if both numbers would be below their floor: the whole group is then kept. Otherwise a number below its floor is
 * raised to the floor, or to all members of its kind if there are fewer. If both floors cannot be met, only the
 * positives' floor is.
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
 * Selects members from one group.
 *
 * The variant `paper` draws positives first, then negatives, both over ascending member index (random.ts specifies the
 * draws).
 * @param members the group's members with a reward, in any order
 * @throws RangeError on a duplicate member, contradictory counts, a reward that is not finite, keep < 1, or `overlong`
 * options out of range
 */
export function selectGroup(members: readonly GroupMember[], options: SelectionOptions): Selection {
  const keep = options.keep
  if (!Number.isInteger(keep) || keep < 1) throw new RangeError(`keep is ${keep}, expected a positive integer`)
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

  const least = options.variant === 'all' ? 2 : keep
  if (all.length < least) return { kind: 'rejected', reason: 'too-few-rewarded', explain: explain(new Set(), null) }
  if ((options.rejectEqual ?? true) && all.every(one => one.reward === all[0]!.reward)) {
    return { kind: 'rejected', reason: 'equal-rewards', explain: explain(new Set(), null) }
  }
  if (options.variant === 'all') return { kind: 'whole', reason: 'all', ...divided(all, null) }
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
    if (sorted[i - 1]?.member === one.member) throw new RangeError(`member ${one.member} occurs twice in the group`)
    if (!Number.isFinite(one.reward))
      throw new RangeError(`member ${one.member} has the reward ${one.reward}, expected a finite number`)
    for (const name of ['member', 'toolCalls', 'toolErrors', 'answerTags', 'turns'] as const) {
      if (!Number.isInteger(one[name]) || one[name] < 0) {
        throw new RangeError(`member ${one.member}: ${name} is ${one[name]}, expected a whole number from 0`)
      }
    }
    if (one.toolErrors > one.toolCalls) {
      throw new RangeError(
        `member ${one.member} has ${one.toolErrors} failed tool calls, expected at most its ${one.toolCalls} tool calls`,
      )
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

/** Sorts by penalty, lowest first; equal penalties by index, since the sort is stable. */
const byPenalty = (members: readonly WeighedMember[]): readonly WeighedMember[] =>
  [...members].sort((a, b) => a.penalty - b.penalty)

function withAdvantages(
  kept: readonly WeighedMember[],
  members: readonly GroupMember[],
  { advantage, overlong }: SelectionOptions,
): readonly SelectedMember[] {
  const lengths = new Map(members.map(({ member, responseTokens = 0 }) => [member, responseTokens]))
  const shaped = kept.map(({ member, reward }) =>
    overlong === undefined ? reward : reward + overlongPunishment(lengths.get(member)!, overlong),
  )
  const values = advantages(shaped, advantage)
  return kept.map((one, i) => ({ ...one, advantage: values[i]! }))
}
