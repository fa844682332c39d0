/**
 * Computes group-relative advantages (arXiv 2508.20722 eq. 2, over the kept members as in §2.2.3).
 *
 * in   rewards of a group's kept members        out  one advantage each, in the same order
 * Invariant: without a learning signal, in a group of one or with all rewards equal, every advantage is exactly 0.
 */

const epsilon = 1e-6

/**
 * Divisor of the advantages. std: the rewards' standard deviation. none: no division, as in Dr.GRPO (arXiv 2503.20783
 * §3), so that a nearly solved or nearly hopeless group weighs no more than others.
 */
export type AdvantageScale = 'std' | 'none'

/**
 * Returns (r − mean) / (std + 1e-6) with the unbiased std (n − 1); with scale `none` r − mean.
 * @throws RangeError on a reward that is not finite
 */
export function advantages(rewards: readonly number[], scaledBy: AdvantageScale = 'std'): readonly number[] {
  const n = rewards.length
  for (const reward of rewards) {
    if (!Number.isFinite(reward)) throw new RangeError(`a reward is ${reward}, expected a finite number`)
  }
  // Compares rewards exactly: if all are equal, the mean's rounding error would be divided by 1e-6.
  if (n < 2 || rewards.every(reward => reward === rewards[0])) return rewards.map(() => 0)
  const mean = rewards.reduce((sum, reward) => sum + reward, 0) / n
  if (scaledBy === 'none') return rewards.map(reward => reward - mean)
  const variance = rewards.reduce((sum, reward) => sum + (reward - mean) ** 2, 0) / (n - 1)
  const scale = Math.sqrt(variance) + epsilon
  return rewards.map(reward => (reward - mean) / scale)
}
