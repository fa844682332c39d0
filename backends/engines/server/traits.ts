/**
 * Types that engines over all kinds of inference servers share: what a probe found, how the engine is started, what it
 * offers.
 *
 * in   the result of a probe        out  the engine's capabilities, and the traits that its requests depend on
 * Invariant: a trait belongs here if servers of more than one kind have it; the folder of each kind adds its own.
 */
import type { EngineId } from '../../../messages/ids'
import type { Effects } from '../../../runtime/effects'
import type { Engine, EngineCapabilities, GenerateRequest, Generation } from '../engine'
import type { ServerExpectation } from './expectation'
import type { ServerHealthOptions } from './health'

export interface ServerTraits {
  readonly version: string
  /** Model name that requests to the server carry. */
  readonly servedName: string
  readonly kvTokens: number
  /** Number of tokens per block, or page, of the KV cache. */
  readonly blockTokens: number
  readonly prefixSharing: boolean
  readonly contextTokens: number
  readonly maxSequences: number
  /** True if the server returns logprobs after temperature and truncation, as sampled from. */
  readonly processedLogprobs: boolean
  /** True if the server can be paused and can load new weights from a directory. */
  readonly takesWeights: boolean
  /** True if requests may carry a seed. */
  readonly takesSeed: boolean
}

/** Returns the capabilities that follow from the traits of a server of any kind. */
export const capabilitiesOf = (
  { servedName, kvTokens, blockTokens, maxSequences, contextTokens, prefixSharing }: ServerTraits,
  { vocabulary }: ServerExpectation,
): Pick<
  EngineCapabilities,
  'model' | 'kvTokens' | 'blockTokens' | 'maxSequences' | 'contextTokens' | 'vocabulary' | 'prefixSharing'
> => ({ model: servedName, kvTokens, blockTokens, maxSequences, contextTokens, vocabulary, prefixSharing })

export interface ServerEngineOptions<Expectation extends ServerExpectation = ServerExpectation> {
  readonly id: EngineId
  /** Address of the server: http://HOST:PORT, or https. */
  readonly url: string
  readonly expected: Expectation
  /** Value of the server's --api-key. */
  readonly token?: string
  /**
   * Milliseconds without an event of the stream after which a turn that has begun fails; time during which weights
   * change or the server sleeps does not count. Default: 120 s.
   */
  readonly stallMs?: number
  /** Upper bound on a turn's wait for its first token, in milliseconds. Default: 600 s. */
  readonly firstTokenMs?: number
  /** Deadline in milliseconds for the server to load new weights or adapters. Default: 600 s. */
  readonly weightUpdateMs?: number
  readonly health?: ServerHealthOptions
  readonly fx?: Effects
}

export interface ServerEngine extends Engine {
  /** Generates as `generate` does, and passes on tokens as they are sampled. */
  stream(request: GenerateRequest, onTokens: (tokens: Int32Array) => void, signal?: AbortSignal): Promise<Generation>
}
