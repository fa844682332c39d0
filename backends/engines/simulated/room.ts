/** Refuses an engine model whose KV cache is too small for a run's contexts. */
import type { EngineModel } from '../../../kernels'
import { TroupeError } from '../../../runtime/errors'

/**
 * Checks that the engine model's KV cache holds a context of the run's greatest length.
 * @throws TroupeError engine.unfit if a context of `contextTokens` does not fit
 */
export function checkRoom({ name, kvTokens, blockTokens }: EngineModel, contextTokens: number): void {
  const room = Math.floor(kvTokens / blockTokens) * blockTokens
  if (contextTokens <= room) return
  throw new TroupeError('engine.unfit', {
    boundary: 'engine',
    retriable: false,
    message: `the engine model '${name}' does not fit this run: its KV cache holds ${room} tokens in whole blocks, the longest context of the recipe has ${contextTokens}`,
    hint: 'use an engine model with more kvTokens, or lower limits.contextTokens and evaluation.limits.contextTokens',
  })
}
