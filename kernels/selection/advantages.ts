/**
 * Group-relative advantages (DESIGN §6; arXiv 2508.20722 eq. 2, over the kept members as in §2.2.3).
 *
 * in   rewards of a group's kept members        out  one advantage each, in the same order
 * Invariant: members that teach nothing get exactly 0: a group of one, and a group whose rewards are all equal.
 */

const epsilon = 1e-6

/** none: Dr.GRPO (2503.20783 §3): a group that is nearly solved or hopeless weighs no more than one in between. */
export type AdvantageScale = 'std' | 'none'

/**
 * (r − mean) / (std + 1e-6), std unbiased (n − 1); r − mean without a scale. Throws RangeError on a reward that is not
 * finite.
 */
export function advantages(rewards: readonly number[], scaledBy: AdvantageScale = 'std'): readonly number[] {
  const n = rewards.length
  for (const reward of rewards) {
    if (!Number.isFinite(reward)) throw new RangeError(`a reward of ${reward}`)
  }
  // Compared exactly: the rounding error of a mean would otherwise be divided by 1e-6.
  if (n < 2 || rewards.every(reward => reward === rewards[0])) return rewards.map(() => 0)
  const mean = rewards.reduce((sum, reward) => sum + reward, 0) / n
  if (scaledBy === 'none') return rewards.map(reward => reward - mean)
  const variance = rewards.reduce((sum, reward) => sum + (reward - mean) ** 2, 0) / (n - 1)
  const scale = Math.sqrt(variance) + epsilon
  return rewards.map(reward => (reward - mean) / scale)
}
