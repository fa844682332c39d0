/**
 * Estimates the memory that a rank of the trainer needs, and the memory of an engine.
 *
 * in   the sizes of a recipe        out  figures in GiB; the trainer's sum for each GPU; tokens of an engine's KV cache
 */
import {
  type GradientReduction,
  layerBytesPerToken,
  type MicroBatchShape,
  savedBytes,
  streamBytes,
} from './activations'
import { billions, count, type Figure, figure, gib } from './figure'
import { headChunkRows } from './headChunk'
import { kvBytesOf } from './modelShape'
import { bytesOf, precisionOf } from './precision'
import type { Sizes } from './sizes'
import { peakMoment } from './workingSet'

export interface TrainerMemory {
  readonly figures: readonly Figure[]
  /** Memory that the trainer takes on each of its GPUs at the peak of a step, GiB. */
  readonly gpuGib: number
  /** Part of `gpuGib` that stays between two steps: weights and optimizer, GiB. */
  readonly restingGib: number
}

/**
 * GPU memory of one rank, in bytes. `bench estimate` and a test compare these numbers with measured steps of the
 * trainer.
 */
export interface TrainerBytes {
  readonly weights: number
  readonly gradients: number
  readonly optimizer: number
  /** Bytes that the forward pass of a micro-batch saves for its backward pass. */
  readonly activations: number
  /** Bytes of other ranks' parameters, and of gradients that are summed over ranks, at the peak. */
  readonly gathered: number
  /** Bytes of temporary tensors at the peak: logits, gradients, a layer that checkpointing computes again. */
  readonly working: number
  /** Name of the phase of a micro-batch in which the sum of activations, gathered and working is largest. */
  readonly moment: string
}

export function trainerBytes(step: MicroBatchShape, parameters: number, trainable: number): TrainerBytes {
  const { ranks, loraRank, gradientReduction } = step
  const activations = savedBytes(step)
  const { name, bytes, gathered } = peakMoment(step)
  return {
    weights: (4 * (loraRank === undefined ? parameters : parameters + trainable)) / ranks,
    gradients: (4 * trainable) / (gradientReduction === 'update' ? 1 : ranks),
    optimizer: (8 * trainable) / ranks,
    ...{ activations, gathered, working: bytes - activations, moment: name },
  }
}

/**
 * Estimates the memory of a rank. `gradientReduction`: with `update` a rank holds whole gradients until an update, with
 * `micro-batch` only its shard of them.
 */
export function trainerMemory(
  { config: { train }, shape: s, parameters, trainable, ranks }: Sizes,
  gradientReduction: GradientReduction,
): TrainerMemory {
  const lora = train.lora !== undefined
  const trained = `${billions(trainable)} ${lora ? 'of adapters' : 'parameters'}`
  const step: MicroBatchShape = {
    ...{ shape: s, ranks, tokens: train.microBatchTokens, half: precisionOf(train.dtype, train.device) === 'bfloat16' },
    ...{ checkpointing: train.checkpointing, loraRank: train.lora?.rank, gradientReduction },
    device: train.device === 'cpu' ? 'cpu' : 'cuda',
  }
  const bytes = trainerBytes(step, parameters, trainable)
  const chunk = Math.min(step.tokens, headChunkRows(s.vocabulary, step.device))
  const perToken = train.checkpointing ? streamBytes(step) * s.hidden : layerBytesPerToken(step)
  const onGpu = [
    figure(
      'trainer: weights',
      bytes.weights / gib,
      'GiB a GPU',
      `${lora ? `4 bytes × (${billions(parameters)} + ${billions(trainable)} of adapters)` : `4 bytes × ${billions(parameters)} (fp32 master)`} / ${ranks} ranks`,
    ),
    figure(
      'trainer: gradients',
      bytes.gradients / gib,
      'GiB a GPU',
      gradientReduction === 'update' && ranks > 1
        ? `4 bytes × ${trained}, whole on each rank until an update (train.gradientReduction update)`
        : `4 bytes × ${trained} / ${ranks} ranks`,
    ),
    figure(
      'trainer: optimizer',
      bytes.optimizer / gib,
      'GiB a GPU',
      `8 bytes × ${trained} / ${ranks} ranks (AdamW: two moments)`,
    ),
    figure(
      'trainer: gathered parameters',
      bytes.gathered / gib,
      'GiB a GPU',
      ranks === 1 ? 'one rank has all parameters' : `embedding, head and layers in use, at the peak (${bytes.moment})`,
    ),
    figure(
      'trainer: activations',
      bytes.activations / gib,
      'GiB a GPU',
      `${count(step.tokens)} tokens × ${s.layers} layers × ${count(perToken)} bytes${train.checkpointing ? " (a layer's input)" : ''} + what the last norm and the head save`,
    ),
    figure(
      'trainer: working set',
      bytes.working / gib,
      'GiB a GPU',
      `gradients and temporary tensors at the peak (${bytes.moment}); the head computes ${count(chunk)} tokens × ${s.vocabulary} logits a chunk`,
    ),
  ]
  const onHost = [
    ...(train.innerSteps * train.miniBatches > 1
      ? [
          figure(
            'trainer: snapshot',
            (12 * trainable) / ranks / gib,
            'GiB of host a rank',
            `(4 + 8) bytes × ${trained} / ${ranks} ranks, to undo the updates of a step`,
          ),
        ]
      : []),
    ...(train.klCoef > 0
      ? [
          figure(
            'trainer: reference',
            (8 * trainable) / ranks / gib,
            'GiB of host a rank',
            `(4 + 4) bytes × ${trained} / ${ranks} ranks: the reference, and the policy while the reference is scored`,
          ),
        ]
      : []),
  ]
  const [weights, , optimizer] = onGpu
  return {
    figures: [...onGpu, ...onHost],
    gpuGib: onGpu.reduce((sum, { value }) => sum + value, 0),
    restingGib: weights!.value + optimizer!.value,
  }
}

export interface EngineMemory {
  readonly figures: readonly Figure[]
  /** Tokens that the KV cache of one engine holds. */
  readonly kvTokens: number
  /** Weights and KV cache on each GPU of an engine, GiB. */
  readonly gpuGib: number
  /** Weights on each GPU of an engine, GiB. */
  readonly weightsGib: number
}

export function engineMemory({ config: { engine }, hardware, shape, parameters, placement }: Sizes): EngineMemory {
  const { memoryGib, engineMemoryShare } = hardware
  const tp = placement.width
  const isLocal = engine.kind === 'local'
  const bytes = isLocal ? bytesOf(engine.dtype, engine.device) : 2
  const weightsGib = (bytes * parameters) / tp / gib
  const kvBytes = (bytes / 2) * kvBytesOf(shape)
  // A local engine's cache holds `engine.kvTokens`; a server's fills what weights leave of
  // `hardware.engineMemoryShare`.
  const kvGib = isLocal ? (engine.kvTokens * kvBytes) / gib : Math.max(0, memoryGib * engineMemoryShare - weightsGib)
  const kvTokens = isLocal ? engine.kvTokens : Math.floor((kvGib * gib * tp) / kvBytes)
  const figures = [
    figure(
      'engine: weights',
      weightsGib,
      'GiB a GPU',
      `${bytes} bytes × ${billions(parameters)} / tensor parallel ${tp}`,
    ),
    figure(
      'engine: KV cache',
      kvGib,
      'GiB a GPU',
      isLocal
        ? `engine.kvTokens × ${kvBytes} bytes a token`
        : `${engineMemoryShare} × ${memoryGib} − weights; ${kvBytes} bytes a token: ${count(kvTokens)} tokens an engine`,
    ),
  ]
  return { figures, kvTokens, weightsGib, gpuGib: weightsGib + kvGib }
}
