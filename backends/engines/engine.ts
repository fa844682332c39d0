/**
 * The Engine: a language model that continues token ids. One interface over our own process, vLLM, SGLang, recordings.
 *
 * in   a context and how to sample            out  tokens, their logprobs, and which policy drew which of them
 * Invariant: token ids in and out; nothing is re-tokenised. An aborted request resolves with what it had.
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
  /** One copy of a common prompt serves a whole group. */
  readonly prefixSharing: boolean
  /** `priority` chooses the victim of a preemption: -1 the largest value goes first, 1 the smallest, 0 it does not. */
  readonly prioritySign: -1 | 0 | 1
  /** Logprobs are of the distribution sampled from; without them an engine cannot be trained on. */
  readonly trainable: boolean
  /** Same seed and context give the same tokens, whatever else runs. */
  readonly deterministic: boolean
  /** Of a run that trains adapters it wants these, and not the model with them merged. Default false. */
  readonly takesAdapters?: boolean
}

export interface GenerateRequest {
  readonly requestId: string
  readonly trajectory: TrajectoryId
  /** 0-based; for what an engine says of it. */
  readonly turn?: number
  /** How much of `context` is the prompt that a group has in common, where it is known. */
  readonly promptTokens?: number
  readonly context: Int32Array
  /** Tokens at the end of `context` that were sampled for this turn before: random numbers go on from there. */
  readonly resumedTokens: number
  readonly maxTokens: number
  readonly sampling: Sampling
  readonly seed: number
  readonly priority: number
  /** Keep the KV cache afterwards: another turn is likely. */
  readonly keep: boolean
}

export interface Generation {
  readonly tokens: Int32Array
  readonly logprobs: Float32Array
  /** [n] nats, of the distributions that the tokens were drawn from, where the engine was asked for them. */
  readonly entropies?: Float32Array
  readonly text: string
  readonly finish: 'stop' | 'length' | 'aborted'
  readonly segments: readonly PolicySegment[]
  readonly cachedTokens: number
  readonly preemptions: number
  readonly timing: TurnTiming
}

/** What of a generation was there when its engine failed. */
export type PartialGeneration = Pick<Generation, 'tokens' | 'logprobs' | 'segments'>

/** An engine failed in the middle of a generation: the error is its cause, with the same code; the tokens so far are kept. */
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
  /** '': of a model as it came, which has none. */
  readonly digest: string
  readonly keepKv: boolean
  /** The directory holds adapters to the model that the engine was started with: for those that take them. */
  readonly isAdapter?: boolean
}

export interface Engine {
  readonly id: EngineId
  readonly capabilities: EngineCapabilities
  /**
   * Throws TroupeError `engine.context_exceeded` (not retriable), `engine.lost` (retriable), `engine.failed`; as a
   * `GenerationLost` where there are tokens to go on from.
   */
  generate(request: GenerateRequest, signal?: AbortSignal): Promise<Generation>
  /** `generate`, with the tokens as they come. Engines without it answer at once. */
  stream?(request: GenerateRequest, onTokens: (tokens: Int32Array) => void, signal?: AbortSignal): Promise<Generation>
  /** Ends a request early; its `generate` resolves with finish `aborted`. */
  abort(requestId: string): Promise<void>
  /** Drops what is kept of a trajectory. */
  release(trajectory: TrajectoryId): Promise<void>
  /** Loads weights from a directory between two iterations and forgets KV of older ones (unless `keepKv`). */
  updateWeights(update: WeightsUpdate): Promise<void>
  status(): Promise<EngineStatus>
  /**
   * Gives the engine's memory back, for a trainer on the same device: what runs is ended and goes on after `wake`, what is
   * asked meanwhile waits. Engines without it cannot. Throws `engine.no_sleep` where the server was not started for it.
   */
  sleep?(): Promise<void>
  /** Takes the memory again, with the weights of the last update. */
  wake?(): Promise<void>
  /** Resolves, with the reason, when the engine is gone. */
  readonly lost: Promise<Error>
  close(): Promise<void>
}
