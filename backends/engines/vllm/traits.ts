/**
 * What a vLLM server can do, as a probe has found it, and what a run expects of it.
 *
 * in   vllmProbe.ts        out  what the engine says of itself, and what its requests carry
 */
import type { ServerExpectation } from '../server/expectation'

export interface VllmExpectation extends ServerExpectation {
  /** The head is the embedding: on CPUs, vLLM 0.32 alone keeps an old one when weights change. */
  readonly tiedHead: boolean
}

export interface VllmTraits {
  readonly version: string
  /** The name that requests give. */
  readonly servedName: string
  readonly kvTokens: number
  readonly blockTokens: number
  readonly prefixSharing: boolean
  readonly contextTokens: number
  readonly maxSequences: number
  /** -1: requests with the largest `priority` are preempted first; 0: the server was not started to look at it. */
  readonly prioritySign: -1 | 0
  /** Logprobs come after temperature and truncation. */
  readonly processedLogprobs: boolean
  /** The endpoints of development mode are there: pause, new weights, reset of the prefix cache. */
  readonly takesWeights: boolean
  /** The run trains adapters, and the server loads some while it runs. */
  readonly takesAdapters: boolean
  /** Requests may carry a seed. On CPUs a seeded request that is prefilled in chunks ends vLLM 0.32. */
  readonly takesSeed: boolean
  /** It was found paused, and told to go on. */
  readonly wasPaused: boolean
}
