/**
 * Builds the simulator's model of an engine on a recipe's hardware. The estimate of generation and the simulated
 * engines of a rehearsal use the same model.
 *
 * in   the sizes of a recipe        out  an engine model of the simulator
 * A step of the engine (one forward pass of its batch) reads the weights once (`denseFloor`) or is bound by arithmetic
 * (`densePerToken`), and reads the keys and values that its decoding tokens attend to. Peak rates are those of the data
 * sheet, times the recipe's assumed utilizations: nothing here was measured on that hardware.
 */
import type { EngineModel } from '../../kernels'
import { engineMemory } from './memory'
import { kvBytesOf } from './modelShape'
import { bytesOf } from './precision'
import type { Sizes } from './sizes'

/** Upper bound on the tokens of one step of an engine: vLLM's default on a GPU with at least 70 GB. */
const maxBatchTokens = 8192
/**
 * Assumed milliseconds of a step that the host needs besides the GPU's work, such as for vLLM's scheduler and sampler.
 */
const overheadMs = 2

export function plannedEngine(sizes: Sizes): EngineModel {
  const { config, hardware, shape, parameters, placement } = sizes
  const { bandwidthGBps, tflops, generationUtilization, trainUtilization } = hardware
  const { blockTokens, maxSequences, kind, dtype, device } = config.engine
  const bytesAMs = (placement.width * bandwidthGBps * 1e9 * generationUtilization) / 1000
  const flopsAMs = (placement.width * tflops * 1e12 * trainUtilization) / 1000
  const weightBytes = kind === 'local' ? bytesOf(dtype, device) : 2
  return {
    name: `${config.name} on ${hardware.name}`,
    family: kind === 'sglang' ? 'sglang' : 'vllm',
    kvTokens: Math.max(blockTokens, engineMemory(sizes).kvTokens),
    ...{ blockTokens, maxSequences, maxBatchTokens, prefixSharing: true },
    stepMs: {
      overhead: overheadMs,
      denseFloor: (weightBytes * parameters) / bytesAMs,
      densePerToken: (2 * parameters) / flopsAMs,
      decodeBase: 0,
      decodePerSequence: 0,
      decodePerKvToken: ((weightBytes / 2) * kvBytesOf(shape)) / bytesAMs,
      prefillBase: 0,
      prefillPerToken: 0,
      // Attention of a new token to an older one: 4 floating-point operations for each layer, head and dimension.
      prefillPerPair: (4 * shape.layers * shape.heads * shape.headDim) / flopsAMs,
    },
  }
}
