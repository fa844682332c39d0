/**
 * DAPO's soft punishment of long answers (arXiv 2503.14476 eq. 13).
 *
 * in   how many tokens the model wrote, and how many it may       out  what is added to the reward, from −penalty to 0
 * Invariant: it falls with the length and nothing jumps: an answer that just fits is punished as one that just does not.
 */

export interface OverlongOptions {
  /** L_max: the tokens that a response may have. */
  readonly maxTokens: number
  /** L_cache: over the last so many of them the punishment grows. */
  readonly bufferTokens: number
  /** At maxTokens and beyond. Default 1. */
  readonly penalty?: number
}

/** As a rollout is punished that may have `responseTokens`; 0: it says no limit, and what the options say holds. */
export function overlongWithin<T extends { readonly overlong?: OverlongOptions }>(
  options: T,
  responseTokens: number,
): T {
  const { overlong } = options
  if (overlong === undefined || responseTokens <= 0) return options
  const bufferTokens = Math.min(overlong.bufferTokens, responseTokens)
  return { ...options, overlong: { ...overlong, bufferTokens, maxTokens: responseTokens } }
}

/** 0 up to maxTokens − bufferTokens, then falling linearly to −penalty. Throws RangeError on options without meaning. */
export function overlongPunishment(tokens: number, options: OverlongOptions): number {
  const { maxTokens, bufferTokens, penalty = 1 } = options
  if (!(bufferTokens > 0 && bufferTokens <= maxTokens && penalty >= 0)) {
    throw new RangeError(`a buffer of ${bufferTokens} of ${maxTokens} tokens with a penalty of ${penalty}`)
  }
  const over = tokens - (maxTokens - bufferTokens)
  return over <= 0 ? 0 : -penalty * Math.min(1, over / bufferTokens)
}
