/**
 * What a run expects of an inference server that somebody else has started.
 *
 * in   the run's model and limits        out  what a probe compares the server with
 */
export interface ServerExpectation {
  /** Of the model's embedding: ids are below it. */
  readonly vocabulary: number
  /** The longest context of the run. */
  readonly contextTokens: number
  /** Whether turns are trained on, and new weights come. */
  readonly trained: boolean
  /** The run trains adapters of this rank. */
  readonly adapterRank?: number
  /** The run's own reading of token ids, to compare the server's with. */
  readonly decode: (tokens: Int32Array) => Promise<string>
  /** Where the server does not say how many sequences it runs at once. */
  readonly maxSequences: number
}
