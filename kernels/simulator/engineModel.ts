/**
 * An engine as the simulator knows it: its sizes, whose scheduling rules it follows, and how long a step lasts (DESIGN §9).
 *
 * in   what one iteration computes: decoding sequences with their keys and values, chunks of prompts      out  ms
 * One step over n scheduled tokens, d of them decodes:
 * `overhead + hypot(denseFloor, densePerToken·n) + [d > 0: decodeBase + decodePerSequence·d + decodePerKvToken·ΣKV]
 *  + Σ chunks of q tokens on k cached (prefillPerToken·q + prefillPerPair·q·(k + q/2))
 *  + [d = 0: prefillBase] + [d > 0 and there are chunks: mixedPerSequence·d]`.
 * ΣKV is what the decoding tokens attend to: everything before each of them, and itself.
 */

/** Coefficients in ms, ms a token, ms a sequence, ms a pair of a new and an older token. */
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
  /** Of each decoding sequence, in a step that computes prompts beside it. Default 0. */
  readonly mixedPerSequence?: number | undefined
}

export const familyNames = ['vllm', 'sglang'] as const
/** Whose rules of admission, batching and preemption an engine follows. */
export type EngineFamily = (typeof familyNames)[number]

/** The content of an engine model file. */
export interface EngineModel {
  readonly name: string
  readonly family: EngineFamily
  /** Room for keys and values; what is left over from whole blocks is not used. */
  readonly kvTokens: number
  readonly blockTokens: number
  /** Sequences that run at once. */
  readonly maxSequences: number
  /** Tokens that one step computes at most: its chunks of prompts and, but for SGLang, a token for every decode. */
  readonly maxBatchTokens: number
  /** One copy of a group's prompt serves all its members. */
  readonly prefixSharing: boolean
  readonly stepMs: StepMs
}

/** q tokens of a prompt behind k that are there already. */
export interface PrefillShape {
  readonly cachedTokens: number
  readonly tokens: number
}

/** Keys and values in whole blocks. */
export const capacityBlocks = (model: EngineModel): number => Math.floor(model.kvTokens / model.blockTokens)

/** How long one step lasts, ms. */
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

/** How long `steps` pure decode steps last, ms; `kvTokens` is what the first attends to, and each sequence grows by one a step. */
export function decodeStepsMs(model: EngineModel, decodes: number, kvTokens: number, steps: number): number {
  const growth = (model.stepMs.decodePerKvToken * decodes * steps * (steps - 1)) / 2
  return steps * stepMs(model, decodes, kvTokens, []) + growth
}
