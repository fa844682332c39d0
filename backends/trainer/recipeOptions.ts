/**
 * Maps a recipe to the options of the trainer.
 *
 * in   a resolved recipe        out  options of an optimizer step, options of the trainer's processes
 * Invariant: a live run and a replay both take their options from here, so both compute the same step.
 */

import type { RecipeConfig } from '../../config/schema'
import { lossDefaults } from '../../config/sections/train'
import type { GrpoOptions } from './trainer'
import type { TrainerProcessOptions } from './trainerProcess'

/** Options of every optimizer step. */
export function grpoOptionsOf({ train, rollout, limits }: RecipeConfig): GrpoOptions {
  const { learningRate, clipLow, clipHigh, lossNorm, dualClip, klCoef, klEstimator, tisCap, icepop } = train
  const { innerSteps, microBatchTokens, maxGradNorm, loss, warmupSteps } = train
  return {
    learningRate,
    clipLow,
    clipHigh,
    lossNorm,
    innerSteps,
    microBatchTokens,
    temperature: rollout.sampling.temperature,
    tisCap,
    maxGradNorm,
    objective: lossDefaults[loss].objective,
    dualClip,
    constantTokens: lossNorm === 'constant' ? limits.responseTokens : 0,
    klCoef,
    klEstimator,
    icepopLow: icepop?.low ?? 0,
    icepopHigh: icepop?.high ?? 0,
    warmupUpdates: warmupSteps * innerSteps,
  }
}

/** Options that the trainer's processes start with. */
export function trainerOptionsOf({
  train,
  seed,
}: RecipeConfig): Pick<
  TrainerProcessOptions,
  'seed' | 'device' | 'dtype' | 'threads' | 'lora' | 'checkpointing' | 'ranks'
> {
  const { device, dtype, threads, lora, checkpointing, ranks } = train
  return { seed, device, dtype, threads, checkpointing, ranks, ...(lora === undefined ? {} : { lora }) }
}
