/**
 * Types that engines over all kinds of inference servers share: what a probe found, how the engine is started, what it offers.
 *
 * in   the result of a probe        out  the engine's capabilities, and what its requests carry
 * Invariant: a trait stands here if servers of more than one kind have it; the folder of each kind adds its own.
 */
import type { EngineId } from '../../../messages/ids'
import type { Effects } from '../../../runtime/effects'
import type { Engine, EngineCapabilities, GenerateRequest, Generation } from '../engine'
import type { ServerExpectation } from './expectation'
import type { ServerHealthOptions } from './health'

export interface ServerTraits {
  readonly version: string
  /** The name that requests give. */
  readonly servedName: string
  readonly kvTokens: number
  /** Tokens of a block, or page, of KV. */
  readonly blockTokens: number
  readonly prefixSharing: boolean
  readonly contextTokens: number
  readonly maxSequences: number
  /** Logprobs come after temperature and truncation. */
  readonly processedLogprobs: boolean
  /** The server can be paused and given new weights from a directory. */
  readonly takesWeights: boolean
  /** Requests may carry a seed. */
  readonly takesSeed: boolean
}

/** The capabilities that follow from these traits for a server of any kind. */
export const capabilitiesOf = (
  { servedName, kvTokens, blockTokens, maxSequences, contextTokens, prefixSharing }: ServerTraits,
  { vocabulary }: ServerExpectation,
): Pick<
  EngineCapabilities,
  'model' | 'kvTokens' | 'blockTokens' | 'maxSequences' | 'contextTokens' | 'vocabulary' | 'prefixSharing'
> => ({ model: servedName, kvTokens, blockTokens, maxSequences, contextTokens, vocabulary, prefixSharing })

export interface ServerEngineOptions<Expectation extends ServerExpectation = ServerExpectation> {
  readonly id: EngineId
  /** http://HOST:PORT, or https. */
  readonly url: string
  readonly expected: Expectation
  /** The value of the server's --api-key. */
  readonly token?: string
  /** A turn that has begun fails after this long without a token. Default 120 s, not counted while weights change. */
  readonly stallMs?: number
  /** Longest wait of a turn for its first token. Default 600 s. */
  readonly firstTokenMs?: number
  readonly health?: ServerHealthOptions
  readonly fx?: Effects
}

export interface ServerEngine extends Engine {
  /** The same as `generate`, handing over tokens as they come. */
  stream(request: GenerateRequest, onTokens: (tokens: Int32Array) => void, signal?: AbortSignal): Promise<Generation>
}
