/**
 * What a run expects of an inference server that somebody else has started.
 *
 * in   the run's model and limits        out  the values that a probe compares the server with
 */
export interface ServerExpectation {
  /** Size of the model's embedding: token ids are below it. */
  readonly vocabulary: number
  /** Longest context of the run, tokens. */
  readonly contextTokens: number
  /** True if turns are trained on, so new weights come. */
  readonly trained: boolean
  /** Rank of the adapters that the run trains. */
  readonly adapterRank?: number
  /** The run's own decoding of token ids, to compare the server's with. */
  readonly decode: (tokens: Int32Array) => Promise<string>
  /** Sequences at once, for servers that do not report their number. */
  readonly maxSequences: number
}
