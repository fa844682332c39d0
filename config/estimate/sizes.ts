/**
 * Computes the quantities that the estimates of memory, of tokens and of time share.
 *
 * in   a resolved recipe, its model's transformers config, the hardware
 * out  parameters, processes of the trainer, engines
 */
import type { RecipeConfig } from '../schema'
import type { HardwareConfig } from '../sections/hardware'
import { loraParameters, type ModelShape, parametersOf, shapeOf } from './modelShape'
import { type EstimatedPlacement, placementOf } from './placement'

export interface Sizes {
  readonly config: RecipeConfig
  readonly hardware: HardwareConfig
  readonly shape: ModelShape
  readonly parameters: number
  /** Parameters that the optimizer changes: all, or those of the adapters. */
  readonly trainable: number
  /** Processes of the trainer, each with its own GPU. */
  readonly ranks: number
  readonly engines: number
  readonly placement: EstimatedPlacement
}

export function sizesOf(
  config: RecipeConfig,
  architecture: Readonly<Record<string, unknown>>,
  hardware: HardwareConfig,
): Sizes {
  const shape = shapeOf(architecture)
  const parameters = parametersOf(shape)
  const placement = placementOf(config, hardware)
  const { ranks, engines } = placement
  return {
    ...{ config, hardware, shape, parameters, ranks, engines, placement },
    trainable: config.train.lora === undefined ? parameters : loraParameters(shape, config.train.lora.rank),
  }
}
