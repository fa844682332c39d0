/**
 * Traits of a vLLM server beyond those of every server, and what a run expects of it.
 *
 * in   probe.ts        out  the engine's capabilities, and what its requests carry
 */
import type { ServerExpectation } from '../server/expectation'
import type { ServerTraits } from '../server/traits'

export interface VllmExpectation extends ServerExpectation {
  /** The head is the embedding: on CPUs, vLLM 0.32 by itself keeps the old head when weights change. */
  readonly tiedHead: boolean
}

/**
 * takesWeights: the endpoints of development mode are there (pause, new weights, reset of the prefix cache).
 * takesSeed: false on CPUs, where a seeded request that is prefilled in chunks ends vLLM 0.32.
 */
export interface VllmTraits extends ServerTraits {
  /** -1: the server preempts requests with the largest `priority` first; 0: it was started to ignore priorities. */
  readonly prioritySign: -1 | 0
  /** The run trains adapters, and the server loads adapters while it runs. */
  readonly takesAdapters: boolean
  /** The probe found the server paused, and resumed it. */
  readonly wasPaused: boolean
}
