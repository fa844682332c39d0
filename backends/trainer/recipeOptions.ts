/**
 * Maps a recipe to the options of the trainer.
 *
 * in   a resolved recipe        out  options of an optimizer step, of fine-tuning, of the trainer's processes
 * Invariant: a live run and a replay both take their options from here, so both compute the same step. Only the
 * recipe's schema has defaults: a request carries every option, and the trainer's process refuses a message that lacks
 * one.
 */
import type { RecipeConfig } from '../../config/schema'
import { lossDefaults } from '../../config/sections/train'

/** Options of every optimizer step: StepOptions of policy.proto, with every field set. */
export type GrpoOptions = Readonly<ReturnType<typeof grpoOptionsOf>>

export function grpoOptionsOf({ train, rollout, limits }: RecipeConfig) {
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
    /** Upper bound on a response, in tokens, by which lossNorm `constant` divides; 0 for other norms. */
    constantTokens: lossNorm === 'constant' ? limits.responseTokens : 0,
    klCoef,
    klEstimator,
    icepopLow: icepop?.low ?? 0,
    /** Upper end of the IcePop band; 0 means no band. */
    icepopHigh: icepop?.high ?? 0,
    /** Number of updates over which the learning rate of a fresh optimizer rises linearly. */
    warmupUpdates: warmupSteps * innerSteps,
  }
}

/** Options of the supervised phase: SftOptions of policy.proto, with every field set. */
export type SftOptions = Readonly<ReturnType<typeof sftOptionsOf>>

export function sftOptionsOf(coldStart: NonNullable<RecipeConfig['coldStart']>, seed: number) {
  const { learningRate, epochs, batchSequences, warmupShare, maxGradNorm } = coldStart
  return { learningRate, epochs, batchSequences, warmupShare, maxGradNorm, seed }
}

/** Options of the trainer's processes. */
export type TrainerSettings = Readonly<
  Pick<RecipeConfig['train'], 'device' | 'dtype' | 'threads' | 'checkpointing' | 'ranks' | 'lora'>
> & { readonly seed: number }

export function trainerOptionsOf({ train, seed }: RecipeConfig): TrainerSettings {
  const { device, dtype, threads, lora, checkpointing, ranks } = train
  return { seed, device, dtype, threads, checkpointing, ranks, ...(lora === undefined ? {} : { lora }) }
}
