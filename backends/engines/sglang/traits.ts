/**
 * Traits of an SGLang server beyond those that all kinds of server share.
 *
 * in   probe.ts        out  the engine's capabilities, and the traits that its requests depend on
 */
import type { ServerTraits } from '../server/traits'

/**
 * Meaning of shared traits for SGLang.
 * contextTokens: upper bound on a request's tokens, context and answer together. SGLang keeps 6 tokens of
 * --context-length for itself, so it is max_req_input_len if the server reports that, else 6 less than
 * --context-length. A context has at least one token less, so that an answer fits.
 * takesWeights: the server pauses, loads weights from a directory and continues, and its answers name the weights that
 * sampled them.
 * takesSeed: with --enable-deterministic-inference, the request's seed decides the tokens.
 */
export interface SglangTraits extends ServerTraits {
  /**
   * Sign by which the server reads `priority` in its queue. -1: the request with the smallest value runs first; 1: the
   * request with the largest; 0: the server was started to ignore priorities. When the KV cache is full, SGLang
   * preempts by the tokens generated so far, whatever the priority.
   */
  readonly prioritySign: -1 | 0 | 1
  /** Server's label of the weights that it had when the engine connected. */
  readonly weightLabel: string
  /** True if answers report which weights sampled which tokens, so that a pause need not end running requests. */
  readonly tellsSpans: boolean
  /** True if requests set `stream_interval` (tokens per event): the server knows it, and its events repeat tokens. */
  readonly takesStreamInterval: boolean
  /** True if the server can free its memory: --enable-memory-saver. */
  readonly sleeps: boolean
}
