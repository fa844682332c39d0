/**
 * Counts the rollouts and the tokens of a step and of the run.
 *
 * in   the sizes of a recipe        out  figures, and the numbers that the estimate of time needs
 * Assumption: a rollout uses half of the response budget on average (`meanShareOfBudget`).
 */
import { keptOfGroup } from '../sections/selection'
import { count, type Figure, figure } from './figure'
import type { Sizes } from './sizes'

/**
 * Assumed mean share of the response budget that a rollout uses. In the paper, rollouts grow from 1K to 4K tokens of an
 * 8K budget in stage 1, and to 8K of 12K in stage 3.
 */
const meanShareOfBudget = 0.5

export interface Tokens {
  readonly figures: readonly Figure[]
  /** Rollouts of a step. */
  readonly rollouts: number
  /** Mean tokens of a rollout. */
  readonly meanTokens: number
  /** Tokens that engines sample for a step. */
  readonly sampled: number
  /** Tokens that the trainer computes in a step: those of the rollouts that selection keeps. */
  readonly trained: number
}

export function tokensOf({ config: { rollout, limits, selection, train } }: Sizes): Tokens {
  const rollouts = rollout.groupsPerStep * rollout.groupSize
  const meanTokens = limits.responseTokens * meanShareOfBudget
  const sampled = rollouts * meanTokens
  const kept = keptOfGroup(selection, rollout.groupSize)
  const trained = rollout.groupsPerStep * kept * meanTokens
  const figures = [
    figure('rollouts a step', rollouts, '', `${rollout.groupsPerStep} groups × ${rollout.groupSize}`),
    figure(
      'sampled tokens a step',
      sampled,
      '',
      `rollouts × ${meanShareOfBudget} × ${limits.responseTokens} (limits.responseTokens); at most ${count(rollouts * limits.responseTokens)}`,
    ),
    figure('trained tokens a step', trained, '', `${rollout.groupsPerStep} groups × G = ${kept} × the same mean`),
    figure('sampled tokens of the run', sampled * train.steps, '', `× ${train.steps} steps`),
  ]
  return { figures, rollouts, meanTokens, sampled, trained }
}
