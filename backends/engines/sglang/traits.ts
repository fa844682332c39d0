/**
 * Traits of an SGLang server beyond those of every server.
 *
 * in   probe.ts        out  the engine's capabilities, and what its requests carry
 */
import type { ServerTraits } from '../server/traits'

/**
 * contextTokens: one more than the longest prompt, since SGLang keeps some tokens of --context-length for itself.
 * takesWeights: the server pauses, loads weights from a directory and continues, and its answers name the weights that sampled them.
 * takesSeed: a seed decides the tokens (--enable-deterministic-inference).
 */
export interface SglangTraits extends ServerTraits {
  /**
   * How the server reads `priority`. -1: the request with the largest value waits longest and is preempted first; 1: the one with
   * the smallest; 0: the server was started to ignore priorities. When KV runs out, SGLang preempts by the tokens generated so far,
   * whatever the priority.
   */
  readonly prioritySign: -1 | 0 | 1
  /** The server's name for the weights that it was started with. */
  readonly weightLabel: string
  /** Answers report from which token on which weights sampled, so a pause need not end running requests. */
  readonly tellsSpans: boolean
  readonly takesStreamInterval: boolean
  /** The server can give memory back: --enable-memory-saver. */
  readonly sleeps: boolean
}
