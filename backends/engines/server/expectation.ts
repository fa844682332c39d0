/**
 * Values that a run expects of an inference server, whoever has started it.
 *
 * in   the run's model and limits        out  the values that a probe compares the server with
 */
export interface ServerExpectation {
  /** Number of rows of the model's embedding; token ids are below it. */
  readonly vocabulary: number
  /** Upper bound on the run's contexts, in tokens. */
  readonly contextTokens: number
  /** True if turns are trained on, so that the server must load new weights. */
  readonly trained: boolean
  /** Rank of the LoRA adapters that the run trains; absent if it trains none. */
  readonly adapterRank?: number
  /** Decodes token ids with the run's own tokenizer, to compare with the server's decoding. */
  readonly decode: (tokens: Int32Array) => Promise<string>
  /** Upper bound on concurrent sequences, for servers that do not report theirs. */
  readonly maxSequences: number
}
