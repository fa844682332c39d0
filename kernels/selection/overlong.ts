/**
 * Computes DAPO's soft overlong punishment (arXiv 2503.14476 eq. 13).
 *
 * in   the number of a response's tokens, and its limit       out  a term for the reward, from −penalty to 0
 * Invariant: the term is continuous and never rises with the length, so the reward does not jump at the limit.
 */

export interface OverlongOptions {
  /** L_max: upper bound on a response's tokens, those of tool responses included. */
  readonly maxTokens: number
  /** L_cache: number of tokens before L_max over which the punishment grows. */
  readonly bufferTokens: number
  /** Size of the punishment from maxTokens on. Default 1. */
  readonly penalty?: number
}

/**
 * Returns the options with maxTokens set to `responseTokens`, the rollout's own limit, and bufferTokens reduced to it
 * if it was larger. Returns the options unchanged if the rollout has no limit of its own (0).
 */
export function overlongWithin<T extends { readonly overlong?: OverlongOptions }>(
  options: T,
  responseTokens: number,
): T {
  const { overlong } = options
  if (overlong === undefined || responseTokens <= 0) return options
  const bufferTokens = Math.min(overlong.bufferTokens, responseTokens)
  return { ...options, overlong: { ...overlong, bufferTokens, maxTokens: responseTokens } }
}

/**
 * Returns 0 for up to maxTokens − bufferTokens tokens; from there the result falls linearly to −penalty at maxTokens,
 * and stays −penalty beyond. @throws RangeError on options out of range
 */
export function overlongPunishment(tokens: number, options: OverlongOptions): number {
  const { maxTokens, bufferTokens, penalty = 1 } = options
  if (!(bufferTokens > 0 && bufferTokens <= maxTokens && penalty >= 0)) {
    throw new RangeError(
      `overlong: expected 0 < bufferTokens ≤ maxTokens and penalty ≥ 0, got ${bufferTokens}, ${maxTokens} and ${penalty}`,
    )
  }
  const over = tokens - (maxTokens - bufferTokens)
  return over <= 0 ? 0 : -penalty * Math.min(1, over / bufferTokens)
}
