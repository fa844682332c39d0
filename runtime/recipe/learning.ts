/**
 * What a recipe says to the trainer and to the grouper, gathered from its sections.
 *
 * in   a resolved recipe        out  options of a step, of the trainer's processes, of a selection
 * Invariant: a live run and a replay take their options from here, so that both compute the same.
 */
import type { SelectionOptions } from '../../kernels'
import type { GrpoOptions } from '../trainer'
import type { TrainerProcessOptions } from '../trainerProcess'
import type { RecipeConfig } from './schema'
import { lossDefaults } from './train'

/** Of every optimizer step. */
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

/** Of the trainer's processes. */
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

/** How a group's members are chosen and weighed; each group has a seed and, by its stage, limits of its own. */
export function selectionOf({ selection, train, limits }: RecipeConfig): Omit<SelectionOptions, 'seed'> {
  const { advantage, overlong } = train
  const shaped = overlong === undefined ? {} : { overlong: { ...overlong, maxTokens: limits.responseTokens } }
  return { ...selection, advantage, ...shaped }
}
