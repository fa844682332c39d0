/**
 * Model of the engine that a recipe's hardware would run, for the rehearsal's simulated engines.
 *
 * in   a recipe, its model's architecture, its hardware        out  an engine model, the number of engines
 * A step reads the weights once (`denseFloor`) or is bound by arithmetic (`densePerToken`), and reads the keys and
 * values that its decoding tokens attend to. Peak rates are those of the data sheet, times the recipe's assumed
 * utilizations, as in the estimate (config/estimate): nothing here was measured on that hardware.
 */
import type { HardwareConfig, RecipeConfig } from '../../config'
import { engineMemory } from '../../config/estimate/memory'
import { kvBytesOf } from '../../config/estimate/modelShape'
import { sizesOf } from '../../config/estimate/sizes'
import type { EngineModel } from '../../kernels'

/** Tokens that vLLM computes at most in one step by default, on a GPU with at least 70 GB. */
const maxBatchTokens = 8192
/** Milliseconds that the host needs for a step besides the GPU's work, as vLLM's scheduler and sampler. */
const overheadMs = 2

export function plannedEngine(
  config: RecipeConfig,
  architecture: Readonly<Record<string, unknown>>,
  hardware: HardwareConfig,
): { readonly model: EngineModel; readonly count: number } {
  const sizes = sizesOf(config, architecture, hardware)
  const { shape, parameters, engines } = sizes
  const { tensorParallel: tp, bandwidthGBps, tflops, generationUtilization, trainUtilization } = hardware
  const bytesAMs = (tp * bandwidthGBps * 1e9 * generationUtilization) / 1000
  const flopsAMs = (tp * tflops * 1e12 * trainUtilization) / 1000
  const { blockTokens, maxSequences } = config.engine
  const kvTokens = Math.max(blockTokens, Math.min(engineMemory(sizes).kvTokens, config.engine.kvTokens))
  return {
    count: engines,
    model: {
      name: `${config.name} on ${hardware.name}`,
      family: config.engine.kind === 'sglang' ? 'sglang' : 'vllm',
      ...{ kvTokens, blockTokens, maxSequences, maxBatchTokens, prefixSharing: true },
      stepMs: {
        overhead: overheadMs,
        denseFloor: (2 * parameters) / bytesAMs,
        densePerToken: (2 * parameters) / flopsAMs,
        decodeBase: 0,
        decodePerSequence: 0,
        decodePerKvToken: kvBytesOf(shape) / bytesAMs,
        prefillBase: 0,
        prefillPerToken: 0,
        // Attention of a new token to an older one: 4 floating-point operations for each layer, head and dimension.
        prefillPerPair: (4 * shape.layers * shape.heads * shape.headDim) / flopsAMs,
      },
    },
  }
}
