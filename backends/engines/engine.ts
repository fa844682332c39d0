/**
 * The Engine: a language model that continues token ids. One interface over Troupe's process, inference servers,
 * recordings, simulations and user code.
 *
 * in   a context and how to sample            out  tokens, their logprobs, and the policy version that sampled each
 * Invariant: token ids in and out; only the OpenAI-compatible engine tokenises, and it is marked as not trainable. A
 * request that is aborted while it runs resolves with the tokens sampled so far; a custom engine's request resolves
 * with what its function returns, or without tokens if the function throws.
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
  /** True if all rollouts of a group share one copy of their prompt's KV cache. */
  readonly prefixSharing: boolean
  /**
   * Sign by which a request's `priority` decides which request is preempted first: -1 the one with the largest value, 1
   * the one with the smallest; 0 means that priority does not decide it.
   */
  readonly prioritySign: -1 | 0 | 1
  /**
   * True if a run may train on the engine's turns. For an inference server it is true if the server's logprobs are
   * those of the distribution sampled from and it can load new weights.
   */
  readonly trainable: boolean
  /** True if the same seed and context give the same tokens, whatever other requests run. */
  readonly deterministic: boolean
  /**
   * True if, in a run that trains adapters, the engine takes the adapters instead of the merged model. Default false.
   */
  readonly takesAdapters?: boolean
}

export interface GenerateRequest {
  readonly requestId: string
  readonly trajectory: TrajectoryId
  /** Number of the turn, 0-based, for the engine's error messages. */
  readonly turn?: number
  /** Number of tokens at the start of `context` that are the group's common prompt; absent if unknown. */
  readonly promptTokens?: number
  readonly context: Int32Array
  /**
   * Number of tokens at the end of `context` that earlier attempts sampled for this turn. Local and simulated engines
   * continue the turn's random sequence after them.
   */
  readonly resumedTokens: number
  readonly maxTokens: number
  readonly sampling: Sampling
  readonly seed: number
  readonly priority: number
  /** True to keep the KV cache after the request, because another turn is likely. Only the local engine obeys it. */
  readonly keep: boolean
}

export interface Generation {
  readonly tokens: Int32Array
  readonly logprobs: Float32Array
  /**
   * [n] entropy, in nats, of the distribution that each token was drawn from; present only from a local engine that was
   * started with `entropies`, and from a recording of one.
   */
  readonly entropies?: Float32Array
  readonly text: string
  readonly finish: 'stop' | 'length' | 'aborted'
  readonly segments: readonly PolicySegment[]
  readonly cachedTokens: number
  readonly preemptions: number
  readonly timing: TurnTiming
}

/** Part of a generation that the engine had sampled when it failed: tokens, logprobs and segments. */
export type PartialGeneration = Pick<Generation, 'tokens' | 'logprobs' | 'segments'>

/**
 * Error of an engine that failed in the middle of a generation. `cause` is the original error. If it is a TroupeError,
 * this error has its code and `retriable`; else the code `engine.failed`, retriable. `partial`: the tokens sampled
 * before it.
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
  /** sha256 of the weights, in hex; '' for the unchanged initial model. */
  readonly digest: string
  readonly keepKv: boolean
  /**
   * sha256 of the directory's manifest.json, by which the model's files are checked before they are loaded; absent in
   * old logs, for the initial model and for adapters.
   */
  readonly manifest?: string
  /** sha256 of the adapter_config.json of adapters; absent in old logs. */
  readonly adapterConfig?: string
  /** True if the directory holds a LoRA adapter to the model that the engine was started with. */
  readonly isAdapter?: boolean
}

export interface Engine {
  readonly id: EngineId
  readonly capabilities: EngineCapabilities
  /**
   * Generates one turn. Throws a TroupeError, such as `engine.context_exceeded` (not retriable), `engine.lost`
   * (retriable) or `engine.failed`. An engine over a server throws it as a `GenerationLost` if there are tokens to
   * continue from.
   */
  generate(request: GenerateRequest, signal?: AbortSignal): Promise<Generation>
  /**
   * Generates as `generate` does, and passes on tokens as they are sampled. An engine without `stream` answers in one
   * piece.
   */
  stream?(request: GenerateRequest, onTokens: (tokens: Int32Array) => void, signal?: AbortSignal): Promise<Generation>
  /**
   * Ends a request early; its `generate` then resolves with finish `aborted`, unless the whole answer is there by then.
   */
  abort(requestId: string): Promise<void>
  /**
   * Drops what the engine keeps for a trajectory: a local engine its KV cache, a simulated one its count of computed
   * tokens. Has no effect on other engines: servers evict unused KV cache by themselves.
   */
  release(trajectory: TrajectoryId): Promise<void>
  /**
   * Loads weights from a directory between two decoding steps and drops the KV cache of the older weights unless
   * `keepKv`. LoRA adapters apply to new requests only. A recorded engine only notes the version; a custom one calls
   * its `load`; an OpenAI-compatible one accepts only the initial model.
   */
  updateWeights(update: WeightsUpdate): Promise<void>
  status(): Promise<EngineStatus>
  /**
   * Frees the engine's memory for a trainer on the same device: running requests pause, new ones wait, and both
   * continue after `wake`. Absent if the engine cannot free memory. Throws `engine.no_sleep` if its server was started
   * without that ability.
   */
  sleep?(): Promise<void>
  /**
   * Allocates the freed memory again, and loads `update`, or the weights of the last update if their memory was freed
   * too.
   */
  wake?(update?: WeightsUpdate): Promise<void>
  /**
   * Resolves with the reason when the engine's process or server is gone; never for an engine without one (custom,
   * recorded, simulated).
   */
  readonly lost: Promise<Error>
  close(): Promise<void>
}
