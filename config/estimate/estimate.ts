/**
 * Estimates what a recipe needs on its hardware: memory of a GPU and its host, disk, tokens and time of a step and of
 * the run, durations that deadlines and timeouts must exceed.
 *
 * in   a resolved recipe, its model's transformers config, the hardware
 * out  figures, each with its formula; reasons why the recipe does not fit
 * Nothing is measured: the figures follow from the recipe, the hardware's data sheet and assumptions. Each subject
 * (memory, disk, tokens, time, durations) has a file, whose header states its assumptions.
 */
import type { RecipeConfig } from '../schema'
import type { HardwareConfig } from '../sections/hardware'
import { deadlineFaults } from './deadlineFaults'
import { diskNeed } from './disk'
import { count, type Figure } from './figure'
import { explainInnerCheckpoints } from './innerCheckpoints'
import { type EstimateParts, partsOf } from './parts'
import { gpuSums } from './perGpu'

export interface Estimate {
  readonly parameters: number
  readonly memory: readonly Figure[]
  readonly tokens: readonly Figure[]
  readonly time: readonly Figure[]
  /** Durations that the recipe's deadlines and timeouts must exceed. */
  readonly durations: readonly Figure[]
  /** Reasons why the recipe does not fit the hardware or its own deadlines; empty when it fits. */
  readonly faults: readonly string[]
}

export function estimate(
  config: RecipeConfig,
  architecture: Readonly<Record<string, unknown>>,
  hardware: HardwareConfig,
): Estimate {
  const parts = partsOf(config, architecture, hardware)
  const { sizes, trainer, engine, tokens, times, durations } = parts
  const sums = gpuSums(sizes, trainer, engine)
  const faults = [...sizeFaults(config, parts), ...deadlineFaults(config, durations)]
  const innerCheckpointEvery = explainInnerCheckpoints(config, durations).every
  return {
    parameters: sizes.parameters,
    memory: [
      ...trainer.figures,
      ...engine.figures,
      ...sums.figures,
      ...diskNeed(sizes, { ...config.train, innerCheckpointEvery }).figures,
    ],
    tokens: tokens.figures,
    time: times.figures,
    durations: [durations.rollout, durations.turn, ...Object.values(durations.timeouts)],
    faults,
  }
}

/** Returns why memory, KV cache, tensor parallelism, ranks or hosts do not fit the hardware, each with its numbers. */
export function sizeFaults({ limits, train }: RecipeConfig, { sizes, trainer, engine }: EstimateParts): string[] {
  const { gpus, gpusPerHost, tensorParallel: tp } = sizes.hardware
  const { hosts } = sizes.placement
  return [
    ...gpuSums(sizes, trainer, engine).faults,
    ...(engine.kvTokens < limits.contextTokens
      ? [
          `an engine's KV cache holds ${count(engine.kvTokens)} tokens, but a context has ${limits.contextTokens}: raise ${sizes.config.engine.kind === 'local' ? 'engine.kvTokens' : 'hardware.tensorParallel or hardware.engineMemoryShare'}`,
        ]
      : []),
    ...(gpus % tp === 0 ? [] : [`hardware.gpus ${gpus} is not a multiple of hardware.tensorParallel ${tp}`]),
    ...(train.ranks > gpus
      ? [`train.ranks ${train.ranks} exceeds hardware.gpus ${gpus}: lower train.ranks, or set hardware.gpus`]
      : []),
    ...(train.nodes > hosts
      ? [
          `train.nodes ${train.nodes} exceeds the hosts of hardware, ${gpus} gpus / ${gpusPerHost} gpusPerHost = ${hosts}: lower train.nodes, or set hardware.gpus or hardware.gpusPerHost`,
        ]
      : []),
  ]
}
