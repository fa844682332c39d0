/**
 * The Engine: a language model that continues token ids. One interface over our own process, vLLM, SGLang, recordings.
 *
 * in   a context and how to sample            out  tokens, their logprobs, and the policy version that sampled each
 * Invariant: token ids in and out; nothing is tokenised again. An aborted request resolves with the tokens that it had.
 */
import type { EngineStatus } from '../../messages/commands'
import type { PolicySegment, Sampling, TurnTiming } from '../../messages/facts'
import type { EngineId, PolicyVersion, TrajectoryId } from '../../messages/ids'
import { TroupeError } from '../../runtime/errors'

export interface EngineCapabilities {
  readonly kind: 'local' | 'vllm' | 'sglang' | 'openai' | 'recorded' | 'simulated' | 'custom'
  readonly model: string
  readonly kvTokens: number
  readonly blockTokens: number
  readonly maxSequences: number
  readonly contextTokens: number
  readonly vocabulary: number
  /** True if a whole group shares one copy of its prompt's KV. */
  readonly prefixSharing: boolean
  /**
   * How `priority` chooses the victim of a preemption: -1 the largest value first, 1 the smallest first, 0 not at all.
   */
  readonly prioritySign: -1 | 0 | 1
  /** True if logprobs are of the distribution sampled from; otherwise the engine cannot be trained on. */
  readonly trainable: boolean
  /** True if the same seed and context give the same tokens, whatever else runs. */
  readonly deterministic: boolean
  /**
   * True if, in a run that trains adapters, the engine takes the adapters instead of the merged model. Default false.
   */
  readonly takesAdapters?: boolean
}

export interface GenerateRequest {
  readonly requestId: string
  readonly trajectory: TrajectoryId
  /** Turn, 0-based, for the engine's messages. */
  readonly turn?: number
  /** Length of the group's common prompt in `context`, if known, tokens. */
  readonly promptTokens?: number
  readonly context: Int32Array
  /**
   * Tokens at the end of `context` that were sampled for this turn earlier: the random sequence continues after them.
   */
  readonly resumedTokens: number
  readonly maxTokens: number
  readonly sampling: Sampling
  readonly seed: number
  readonly priority: number
  /** Keeps the KV cache afterwards, because another turn is likely. */
  readonly keep: boolean
}

export interface Generation {
  readonly tokens: Int32Array
  readonly logprobs: Float32Array
  /** [n] nats, entropy of the distribution that each token was drawn from, if the engine was asked for them. */
  readonly entropies?: Float32Array
  readonly text: string
  readonly finish: 'stop' | 'length' | 'aborted'
  readonly segments: readonly PolicySegment[]
  readonly cachedTokens: number
  readonly preemptions: number
  readonly timing: TurnTiming
}

/** The part of a generation that existed when its engine failed. */
export type PartialGeneration = Pick<Generation, 'tokens' | 'logprobs' | 'segments'>

/**
 * An engine failed in the middle of a generation: `cause` is the error, with the same code; the tokens so far are kept.
 */
export class GenerationLost extends TroupeError {
  constructor(
    cause: Error,
    readonly partial: PartialGeneration,
  ) {
    const { code, retriable } = cause instanceof TroupeError ? cause : { code: 'engine.failed', retriable: true }
    super(code, { boundary: 'engine', retriable, message: cause.message, cause })
  }
}

export interface WeightsUpdate {
  readonly version: PolicyVersion
  readonly directory: string
  /** sha256 of the weights, hex; '' for a model as it was given, which has none. */
  readonly digest: string
  readonly keepKv: boolean
  /** True if the directory holds adapters to the model that the engine was started with. */
  readonly isAdapter?: boolean
}

export interface Engine {
  readonly id: EngineId
  readonly capabilities: EngineCapabilities
  /**
   * Throws TroupeError `engine.context_exceeded` (not retriable), `engine.lost` (retriable), `engine.failed`; as a
   * `GenerationLost` if there are tokens to continue from.
   */
  generate(request: GenerateRequest, signal?: AbortSignal): Promise<Generation>
  /** The same as `generate`, handing over tokens as they come. Engines without it answer at once. */
  stream?(request: GenerateRequest, onTokens: (tokens: Int32Array) => void, signal?: AbortSignal): Promise<Generation>
  /** Ends a request early; its `generate` resolves with finish `aborted`. */
  abort(requestId: string): Promise<void>
  /** Drops what is kept for a trajectory. */
  release(trajectory: TrajectoryId): Promise<void>
  /** Loads weights from a directory between two iterations and drops the KV of older ones (unless `keepKv`). */
  updateWeights(update: WeightsUpdate): Promise<void>
  status(): Promise<EngineStatus>
  /**
   * Frees the engine's memory for a trainer on the same device: running requests end and continue after `wake`, new ones wait.
   * Engines without it cannot. Throws `engine.no_sleep` if the server was not started for it.
   */
  sleep?(): Promise<void>
  /** Takes the memory again, with the weights of the last update. */
  wake?(): Promise<void>
  /** Resolves with the reason when the engine is gone. */
  readonly lost: Promise<Error>
  close(): Promise<void>
}
