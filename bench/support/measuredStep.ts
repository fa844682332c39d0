/**
 * Estimates the memory of one training step, and measures it on a random model on the CPU, in processes of its own;
 * measures the time of other steps.
 *
 * in   a configuration: architecture, size of a micro-batch, how it is trained; batches to time
 * out  bytes by category and FLOPs, estimated (config/estimate) and measured (policy/measure); CPU seconds of batches,
 * by micro-batch
 */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { type TrainerBytes, trainerBytes } from '../../config/estimate/memory'
import { loraParameters, parametersOf, shapeOf } from '../../config/estimate/modelShape'
import { microBatchWork } from '../../config/estimate/trainingWork'
import { pythonEnvironment, pythonPath } from '../../runtime/python'

export interface StepConfiguration {
  readonly size: keyof typeof models
  readonly dtype?: 'float32' | 'bfloat16'
  readonly checkpointing?: boolean
  readonly loraRank?: number
  readonly ranks?: number
  /** Tokens of a micro-batch; a step has two of them on each rank. */
  readonly tokens?: number
  readonly gradientReduction?: 'micro-batch' | 'update'
  /** true: also measure how much the process grew since its imports. */
  readonly resident?: boolean
  /** true: also count the floating-point operations of a step. */
  readonly flops?: boolean
}

export interface TimedBatch {
  readonly lengths: readonly number[]
  readonly microBatchTokens: number
}

/** Processor seconds of one batch on rank 0: its micro-batches in order, its update, the whole step. */
export interface TimedStep {
  readonly micros: readonly number[]
  readonly update: number
  readonly step: number
}

export interface MeasuredStep {
  readonly estimated: TrainerBytes
  readonly measured: MeasuredBytes
  /** Estimated bytes divided by the measured peak. */
  readonly ratio: number
  readonly residentBytes?: number
  /** FLOPs of one rank's step, by torch's operation. */
  readonly flops?: Readonly<Record<string, number>>
  /** FLOPs of matrix products in one rank's step, as the estimate counts them. */
  readonly estimatedFlops: number
}

interface MeasuredBytes {
  readonly weights: number
  readonly gradients: number
  readonly optimizer: number
  readonly activations: number
  readonly working: number
  readonly total: number
}

/** Architectures of four sizes; the largest is SmolLM2-135M's. */
export const models = {
  '1M': architecture('llama', { vocabulary: 1024, hidden: 128, intermediate: 384, layers: 4, heads: 4, kv: 2 }),
  '10M': architecture(
    'qwen2',
    { vocabulary: 8192, hidden: 256, intermediate: 768, layers: 8, heads: 8, kv: 2 },
    { tied: false },
  ),
  '40M': architecture('qwen2', { vocabulary: 16_384, hidden: 512, intermediate: 1408, layers: 11, heads: 8, kv: 2 }),
  '135M': architecture('llama', { vocabulary: 49_152, hidden: 576, intermediate: 1536, layers: 30, heads: 9, kv: 3 }),
} as const

const sequenceTokens = 128
/** Prompt tokens of each sequence, which are not trained on (policy/measure). */
export const promptTokens = 8
const timeoutMs = 1_800_000

export async function measuredStep(asked: StepConfiguration): Promise<MeasuredStep> {
  const { size, dtype = 'float32', checkpointing = false, loraRank, ranks = 1, tokens = 512 } = asked
  const { resident, flops, gradientReduction = 'micro-batch' } = asked
  const model = models[size]
  const shape = shapeOf(model)
  const parameters = parametersOf(shape)
  const trainable = loraRank === undefined ? parameters : loraParameters(shape, loraRank)
  const half = dtype === 'bfloat16'
  const how = { shape, device: 'cpu' as const, tokens, half, checkpointing, loraRank, ranks, gradientReduction }
  const estimated = trainerBytes(how, parameters, trainable)
  const lengths = new Array<number>((2 * ranks * tokens) / sequenceTokens).fill(sequenceTokens)
  const given = { ...howGiven(asked), lengths, microBatchTokens: tokens, resident, flops }
  const { peak, ...rest } = await measure<{ peak: MeasuredBytes } & Pick<MeasuredStep, 'residentBytes' | 'flops'>>(
    given,
    ranks,
  )
  const { weights, gradients, optimizer, activations, working, gathered } = estimated
  const sum = weights + gradients + optimizer + activations + working + gathered
  const sequences = tokens / sequenceTokens
  const work = microBatchWork(how, {
    lengths: new Array<number>(sequences).fill(sequenceTokens),
    trained: sequences * (sequenceTokens - promptTokens),
  })
  return { estimated, measured: peak, ratio: sum / peak.total, estimatedFlops: 2 * work.matrices, ...rest }
}

/**
 * Measures the processor time of batches, as the least of `rounds` rounds. Every rank gets the same share of each
 * batch.
 */
export async function measuredTimes(
  asked: StepConfiguration,
  timed: readonly TimedBatch[],
  rounds: number,
): Promise<readonly TimedStep[]> {
  const { ranks = 1 } = asked
  const lengths = new Array<number>(ranks).fill(sequenceTokens)
  const given = { ...howGiven(asked), lengths, microBatchTokens: sequenceTokens, memory: false, timed, rounds }
  return (await measure<{ timed: readonly TimedStep[] }>(given, ranks)).timed
}

/** Returns the arguments of the measuring process that describe the training configuration. */
const howGiven = ({
  size,
  dtype = 'float32',
  checkpointing = false,
  loraRank,
  gradientReduction,
}: StepConfiguration) => ({
  model: models[size],
  ...{ dtype, checkpointing, lora: loraRank ?? null, gradientReduction: gradientReduction ?? 'micro-batch' },
})

async function measure<T>(given: object, ranks: number): Promise<T> {
  const launcher = ['-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', String(ranks)]
  const args = [...(ranks > 1 ? launcher : []), '-m', 'measure', JSON.stringify(given)]
  const env = pythonEnvironment({ OMP_NUM_THREADS: '1', HF_HUB_OFFLINE: '1' })
  const { stdout } = await promisify(execFile)(pythonPath(), args, { env, timeout: timeoutMs, killSignal: 'SIGKILL' })
  return JSON.parse(stdout.trim().split('\n').at(-1)!)
}

function architecture(
  type: 'llama' | 'qwen2',
  of: Record<'vocabulary' | 'hidden' | 'intermediate' | 'layers' | 'heads' | 'kv', number>,
  { tied = true } = {},
) {
  return {
    model_type: type,
    vocab_size: of.vocabulary,
    hidden_size: of.hidden,
    intermediate_size: of.intermediate,
    num_hidden_layers: of.layers,
    num_attention_heads: of.heads,
    num_key_value_heads: of.kv,
    max_position_embeddings: 2048,
    tie_word_embeddings: tied,
  }
}
