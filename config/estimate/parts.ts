/** Computes the parts of an estimate, each once: sizes, memory, tokens, gradient reduction, times and durations. */
import type { RecipeConfig } from '../schema'
import type { HardwareConfig } from '../sections/hardware'
import { type Durations, durationsOf } from './durations'
import { type EngineMemory, engineMemory, type TrainerMemory, trainerMemory } from './memory'
import { type Reduction, reductionOf } from './reduction'
import { type Sizes, sizesOf } from './sizes'
import { type Times, timesOf } from './time'
import { type Tokens, tokensOf } from './tokens'

export interface EstimateParts {
  readonly sizes: Sizes
  readonly reduction: Reduction
  readonly trainer: TrainerMemory
  readonly engine: EngineMemory
  readonly tokens: Tokens
  readonly times: Times
  readonly durations: Durations
}

export function partsOf(
  config: RecipeConfig,
  architecture: Readonly<Record<string, unknown>>,
  hardware: HardwareConfig,
): EstimateParts {
  const sizes = sizesOf(config, architecture, hardware)
  const engine = engineMemory(sizes)
  const tokens = tokensOf(sizes)
  const reduction = reductionOf(sizes)
  const times = timesOf(sizes, tokens, reduction.value)
  return {
    sizes,
    reduction,
    trainer: trainerMemory(sizes, reduction.value),
    engine,
    tokens,
    times,
    durations: durationsOf(sizes, times),
  }
}
