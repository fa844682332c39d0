/**
 * Estimates pass@k: the expected reward of the best of k answers.
 *
 * in   the rewards of n answers to one problem, k ≤ n
 * out  the mean of the best over all choices of k of the n answers
 * Invariant: the estimate is unbiased for every k ≤ n; for rewards 0 and 1 it is 1 − C(n − c, k) / C(n, k) with c
 * solved answers (arXiv 2107.03374 eq. 1). The binomials themselves would overflow, so each weight is computed from the
 * previous.
 */

/** Returns the expected best reward of k answers. @throws RangeError unless 1 ≤ k ≤ the number of rewards */
export function expectedBest(rewards: readonly number[], k: number): number {
  const n = rewards.length
  if (!Number.isInteger(k) || k < 1 || k > n) throw new RangeError(`k is ${k}, expected a whole number from 1 to ${n}`)
  const descending = [...rewards].sort((a, b) => b - a)
  let sum = 0
  // Share of the choices of k answers whose best is the one at `rank` (0: the best of all): C(n − 1 − rank, k − 1) /
  // C(n, k).
  let share = k / n
  for (let rank = 0; rank <= n - k; rank++) {
    sum += share * descending[rank]!
    share *= (n - rank - k) / (n - rank - 1 || 1)
  }
  return sum
}
