/**
 * Models an engine for the simulator: its sizes, its family's scheduling rules, and the duration of a step.
 *
 * in   the work of one step: decoding sequences with their keys and values, chunks of prompts      out  ms
 * A step over n scheduled tokens, d of them decodes, lasts
 * `overhead + hypot(denseFloor, densePerToken·n) + [d > 0: decodeBase + decodePerSequence·d + decodePerKvToken·ΣKV]
 *  + Σ chunks of q tokens on k cached (prefillPerToken·q + prefillPerPair·q·(k + q/2))
 *  + [d = 0: prefillBase] + [d > 0 and there are chunks: mixedPerSequence·d]`.
 * ΣKV counts the tokens that the decoding tokens attend to: everything before each of them, and the token itself.
 */

/**
 * Coefficients of a step's duration, in ms, ms per token, ms per sequence, or ms per pair of a new and an older token.
 */
export interface StepMs {
  readonly overhead: number
  readonly denseFloor: number
  readonly densePerToken: number
  readonly decodeBase: number
  readonly decodePerSequence: number
  readonly decodePerKvToken: number
  readonly prefillBase: number
  readonly prefillPerToken: number
  readonly prefillPerPair: number
  /** Milliseconds added per decoding sequence in a step that also computes prompts. Default 0. */
  readonly mixedPerSequence?: number | undefined
}

export const familyNames = ['vllm', 'sglang'] as const
/** Inference server whose rules of admission, batching and preemption an engine follows. */
export type EngineFamily = (typeof familyNames)[number]

/** Model of an engine, as an engine model file holds it: its sizes, its family, and the duration of its steps. */
export interface EngineModel {
  readonly name: string
  readonly family: EngineFamily
  /** Capacity of the KV cache, in tokens. Only whole blocks are used. */
  readonly kvTokens: number
  readonly blockTokens: number
  /** Upper bound on the sequences that run at once. */
  readonly maxSequences: number
  /** Upper bound on the tokens of one step: chunks of prompts and, except for SGLang, one token per decode. */
  readonly maxBatchTokens: number
  /** true: one cached copy of a group's prompt serves all its members. */
  readonly prefixSharing: boolean
  readonly stepMs: StepMs
}

/** Chunk of a prompt that one step computes: `tokens` prompt tokens after `cachedTokens` cached ones. */
export interface PrefillShape {
  readonly cachedTokens: number
  readonly tokens: number
}

/** Returns the number of whole blocks that fit into the engine's KV cache. */
export const capacityBlocks = (model: EngineModel): number => Math.floor(model.kvTokens / model.blockTokens)

/** Returns the duration of one step in ms. */
export function stepMs(
  { stepMs: c }: EngineModel,
  decodes: number,
  kvTokens: number,
  chunks: readonly PrefillShape[],
): number {
  let scheduled = decodes
  let prefill = 0
  for (const { cachedTokens: k, tokens: q } of chunks) {
    scheduled += q
    prefill += c.prefillPerToken * q + c.prefillPerPair * q * (k + q / 2)
  }
  const dense = Math.hypot(c.denseFloor, c.densePerToken * scheduled)
  const perSequence = c.decodePerSequence + (chunks.length > 0 ? (c.mixedPerSequence ?? 0) : 0)
  const attention = decodes > 0 ? c.decodeBase + perSequence * decodes + c.decodePerKvToken * kvTokens : c.prefillBase
  return c.overhead + dense + attention + prefill
}

/**
 * Returns the duration of `steps` pure decode steps in ms.
 * @param kvTokens tokens that the first step attends to; each sequence grows by one token per step
 */
export function decodeStepsMs(model: EngineModel, decodes: number, kvTokens: number, steps: number): number {
  const growth = (model.stepMs.decodePerKvToken * decodes * steps * (steps - 1)) / 2
  return steps * stepMs(model, decodes, kvTokens, []) + growth
}
