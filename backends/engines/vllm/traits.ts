/**
 * Traits of a vLLM server beyond those that all kinds of server share, and what a run expects of it.
 *
 * in   probe.ts        out  the engine's capabilities, and the traits that its requests depend on
 */
import type { ServerExpectation } from '../server/expectation'
import type { ServerTraits } from '../server/traits'

export interface VllmExpectation extends ServerExpectation {
  /**
   * True if the model's head is its embedding (tied): on CPUs, vLLM 0.32 without Troupe's plugin keeps the old head
   * when weights change.
   */
  readonly tiedHead: boolean
}

/**
 * Meaning of shared traits for vLLM.
 * takesWeights: the server has /is_paused, so the endpoints of development mode are there (pause, new weights, reset of
 * the prefix cache). takesSeed: false on CPUs, where a seeded request that is prefilled in chunks crashes vLLM 0.32,
 * and if the server does not report its device.
 */
export interface VllmTraits extends ServerTraits {
  /**
   * Sign by which the server reads `priority`. -1: it preempts requests with the largest value first; 0: it was started
   * to ignore priorities.
   */
  readonly prioritySign: -1 | 0
  /** True if the run trains adapters and the server can load adapters while it runs. */
  readonly takesAdapters: boolean
  /** True if the probe found the server paused and resumed it. */
  readonly wasPaused: boolean
}
