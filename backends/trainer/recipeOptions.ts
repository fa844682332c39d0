/**
 * Maps a recipe to the options of the trainer.
 *
 * in   a resolved recipe        out  options of a GRPO step, of fine-tuning, of the trainer's processes; their timeouts
 * Invariant: a live run and a replay both take their options from here, so both compute the same step. The options of
 * a call have their defaults in the recipe's schema only: a request carries every option, and the trainer's process
 * refuses one that lacks an option.
 */
import type { GradientReduction } from '../../config/estimate/activations'
import { resolvedReduction } from '../../config/estimate/reduction'
import { timeoutsOf } from '../../config/estimate/timeouts'
import type { RecipeConfig } from '../../config/schema'
import { type Correction, correctionOf } from '../../config/sections/correction'
import { lossDefaults } from '../../config/sections/train'

/** Options of every GRPO step: StepOptions of policy.proto, with every field set. */
export type GrpoOptions = Readonly<ReturnType<typeof grpoOptionsOf>>

export function grpoOptionsOf({ train, rollout, limits, seed }: RecipeConfig) {
  const { learningRate, clipLow, clipHigh, lossNorm, dualClip, klCoef, klEstimator } = train
  const { innerSteps, miniBatches, miniBatchUnit, microBatchTokens, maxGradNorm, loss, warmupSteps } = train
  const correction = correctionOf(train)
  return {
    learningRate,
    clipLow,
    clipHigh,
    lossNorm,
    innerSteps,
    microBatchTokens,
    temperature: rollout.sampling.temperature,
    maxGradNorm,
    objective: lossDefaults[loss].objective,
    dualClip,
    /**
     * Upper bound on a response, in tokens: lossNorm `constant` divides by it times the number of sequences. 0 for
     * other norms.
     */
    constantTokens: lossNorm === 'constant' ? limits.responseTokens : 0,
    klCoef,
    klEstimator,
    /** Number of updates over which the learning rate of a fresh optimizer rises linearly. */
    warmupUpdates: warmupSteps * innerSteps * miniBatches,
    correction: correction?.kind ?? 'none',
    ...boundsOf(correction),
    miniBatches,
    miniBatchUnit,
    miniBatchSeed: seed,
  }
}

/** Bounds on the ratio π_old / π_engine that a correction has; 0 for a bound that it does not have. */
function boundsOf(correction: Correction | undefined) {
  switch (correction?.kind) {
    case undefined:
    case 'engine-logprobs':
      return { correctionLow: 0, correctionHigh: 0 }
    case 'truncated':
      return { correctionLow: 0, correctionHigh: correction.cap }
    case 'masked':
    case 'icepop':
    case 'geometric-mask':
      return { correctionLow: correction.low, correctionHigh: correction.high }
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
  Pick<
    RecipeConfig['train'],
    | 'device'
    | 'dtype'
    | 'publishedDtype'
    | 'threads'
    | 'checkpointing'
    | 'attention'
    | 'compile'
    | 'ranks'
    | 'nodes'
    | 'rendezvous'
    | 'lora'
  >
> & {
  readonly seed: number
  readonly gradientReduction: GradientReduction
  /** Upper bound on the tokens of one step; absent: the trainer's own default, 2^27. */
  readonly maxStepTokens?: number
}

/** Smallest `maxStepTokens`, for small recipes: an agent's rollout may give several sequences, so more tokens. */
const leastStepTokens = 2 ** 27

export function trainerOptionsOf(config: RecipeConfig): TrainerSettings {
  const { train, seed } = config
  const { device, dtype, publishedDtype, threads, lora, checkpointing, ranks, nodes, rendezvous } = train
  const { attention, compile } = train
  const gradientReduction = resolvedReduction(config).value
  const more = { ...(rendezvous === undefined ? {} : { rendezvous }), ...(lora === undefined ? {} : { lora }) }
  return {
    seed,
    device,
    dtype,
    publishedDtype,
    threads,
    checkpointing,
    gradientReduction,
    attention,
    compile,
    ranks,
    nodes,
    maxStepTokens: maxStepTokensOf(config),
    ...more,
  }
}

/** Tokens of a step in which all rollouts of all groups fill their contexts, but at least `leastStepTokens`. */
function maxStepTokensOf({ rollout, limits }: RecipeConfig): number {
  return Math.max(leastStepTokens, rollout.groupsPerStep * rollout.groupSize * limits.contextTokens)
}

/** Timeouts of the trainer's processes and of their calls. */
export function trainerTimeoutsOf(config: RecipeConfig) {
  const { trainerStartMs, stepMs, sftMs, saveMs, loadMs, rankWaitMs } = timeoutsOf(config)
  return {
    startTimeoutMs: trainerStartMs,
    stepTimeoutMs: stepMs,
    sftTimeoutMs: sftMs,
    saveTimeoutMs: saveMs,
    loadTimeoutMs: loadMs,
    rankTimeoutMs: rankWaitMs,
  }
}
