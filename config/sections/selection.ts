/** The recipe's selection of rollouts to train on: GRPO-RoC. */
import { z } from 'zod'
import { count, positive } from './numbers'

export const selectionSection = z.strictObject({
  /**
   * Method of selection. paper: RoC as in the paper. release: RoC as in its released code. none: `keep` of the group,
   * at random. all: every rewarded rollout of the group, without RoC; `keep`, `minPositive` and `minNegative` then have
   * no effect.
   */
  variant: z.enum(['paper', 'release', 'none', 'all']).default('paper'),
  /**
   * Number of rollouts that are selected from a group for training (G in the paper). A group with fewer rewarded
   * rollouts, or (`rejectEqual`) with equal rewards, is rejected. A group with exactly `keep` rewarded ones is kept
   * whole; so is one of which RoC would keep fewer than `minPositive` positives and fewer than `minNegative` negatives.
   */
  keep: positive.min(2).default(16),
  minPositive: count.default(2),
  minNegative: count.default(2),
  /** A rollout with a reward above this is a positive for RoC. */
  positiveAbove: z.number().default(0),
  rejectEqual: z.boolean().default(true),
  errorRatio: z.boolean().default(true),
  answerFormat: z.boolean().default(true),
  /**
   * Number added to a positive's penalty p before the random choice of positives weighs it by 1 / (p + epsilon). At
   * 1e-6 a rollout without a flaw outweighs one with p = 0.5 by 500,000, so the choice is nearly a sort; at 0.1 it
   * outweighs it by 6.
   */
  epsilon: z.number().positive().default(1e-6),
  /** Upper bound on the groups that a step requests in place of rejected ones, as a share of groupsPerStep. */
  refillShare: z.number().nonnegative().default(1),
})

/** Number of rollouts of a group of `groupSize` that are trained on, if all of them are rewarded and unequal. */
export const keptOfGroup = (
  { variant, keep }: Pick<z.output<typeof selectionSection>, 'variant' | 'keep'>,
  groupSize: number,
): number => (variant === 'all' ? groupSize : keep)
