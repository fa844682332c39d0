/**
 * Resolves `train.gradientReduction`, the time at which ranks sum their gradients: the recipe's value, or for `auto`
 * the one that fits the GPUs' memory.
 *
 * in   a resolved recipe; its sizes where its model's transformers config is known
 * out  the value, and its origin
 * Invariant: `auto` is `update` only if there are several ranks on GPUs, the recipe names its hardware, and the trainer
 * with whole gradients, plus the engine on the same GPU (asleep if colocated), takes at most nine tenths of the GPU's
 * memory by the estimate. A run records the value, so that a resume keeps it.
 */
import type { RecipeConfig } from '../schema'
import { hardwareSection } from '../sections/hardware'
import type { GradientReduction } from './activations'
import { architectureIfKnown } from './architecture'
import { engineMemory, trainerMemory } from './memory'
import { trainerGib } from './perGpu'
import { type Sizes, sizesOf } from './sizes'

/**
 * Share of a GPU's memory that `auto` may fill: the estimate is within a tenth of measured steps
 * (docs/training-measured.md).
 */
const fullShare = 0.9

export interface Reduction {
  readonly value: GradientReduction
  /** Source of the value, in words; undefined if the recipe names the value. */
  readonly origin: string | undefined
}

export function reductionOf(sizes: Sizes): Reduction {
  const { config, hardware, ranks } = sizes
  const { gradientReduction, device } = config.train
  if (gradientReduction !== 'auto') return { value: gradientReduction, origin: undefined }
  const perMicroBatch = (why: string): Reduction => ({ value: 'micro-batch', origin: `auto: ${why}` })
  if (ranks === 1) return perMicroBatch('one rank has nothing to sum')
  if (config.hardware === undefined) return perMicroBatch('the recipe names no hardware whose memory could be compared')
  if (device === 'cpu') return perMicroBatch('the memory of ranks on a CPU is not compared')
  const whole = trainerMemory(sizes, 'update').gpuGib
  const { gib, said } = trainerGib(sizes, whole, engineMemory(sizes))
  const sum = `${said} = ${gib.toFixed(1)} GiB with a whole gradient on each rank; up to ${fullShare} × ${hardware.memoryGib} fit`
  return gib <= fullShare * hardware.memoryGib ? { value: 'update', origin: `auto: ${sum}` } : perMicroBatch(sum)
}

/** Resolves the recipe's reduction; `auto` is `micro-batch` if the model's transformers config cannot be read. */
export function resolvedReduction(config: RecipeConfig): Reduction {
  const { gradientReduction } = config.train
  if (gradientReduction !== 'auto') return { value: gradientReduction, origin: undefined }
  const architecture = architectureIfKnown(config)
  if (architecture === undefined)
    return { value: 'micro-batch', origin: 'auto: no estimate without the model’s config' }
  return reductionOf(sizesOf(config, architecture, config.hardware ?? hardwareSection.parse({})))
}

/** Returns the recipe with `auto` replaced by the resolved reduction, as a run records it. */
export const withReduction = (config: RecipeConfig): RecipeConfig =>
  config.train.gradientReduction === 'auto'
    ? { ...config, train: { ...config.train, gradientReduction: resolvedReduction(config).value } }
    : config
