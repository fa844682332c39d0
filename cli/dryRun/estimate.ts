/**
 * Estimates what a recipe needs on its hardware: memory of a GPU and its host, tokens and time of a step.
 *
 * in   a resolved recipe, its model's transformers config        out  figures, each with its formula
 * Invariant: pure arithmetic on the numbers of the recipe and the hardware's data sheet. Each figure states its
 * assumptions (utilization, mean share of the response budget that a rollout uses). Communication and imbalance
 * between GPUs are left out.
 */
import type { HardwareConfig, RecipeConfig } from '../../config'
import { headChunkRows } from './headChunk'

export interface Figure {
  readonly what: string
  readonly value: number
  readonly unit: string
  readonly formula: string
}

export interface Estimate {
  readonly parameters: number
  readonly memory: readonly Figure[]
  readonly tokens: readonly Figure[]
  readonly time: readonly Figure[]
  /** Reasons why the recipe does not fit the hardware; empty when it fits. */
  readonly faults: readonly string[]
}

interface Shape {
  readonly hidden: number
  readonly layers: number
  readonly heads: number
  readonly kvHeads: number
  readonly headDim: number
  readonly intermediate: number
  readonly vocabulary: number
  readonly tied: boolean
}

const gib = 2 ** 30
/**
 * Assumed mean share of the response budget that a rollout uses. In the paper, rollouts grow from 1K to 4K tokens of an 8K
 * budget in stage 1, and to 8K of 12K in stage 3.
 */
const meanShareOfBudget = 0.5

export function estimate(
  config: RecipeConfig,
  architecture: Readonly<Record<string, unknown>>,
  hardware: HardwareConfig,
): Estimate {
  const s = shapeOf(architecture)
  const { gpus, tensorParallel: tp, memoryGib, engineMemoryShare } = hardware
  const { train, rollout, selection, limits } = config
  const parameters = parametersOf(s)
  const trainable = train.lora === undefined ? parameters : loraParameters(s, train.lora.rank)
  const ranks = Math.max(1, Math.min(train.ranks, gpus))

  const weights = (2 * parameters) / tp / gib
  const lora = train.lora !== undefined
  const states = {
    weights: (4 * (lora ? parameters + trainable : parameters)) / ranks / gib,
    gradients: (4 * trainable) / ranks / gib,
    optimizer: (8 * trainable) / ranks / gib,
    said: {
      weights: lora
        ? `4 bytes × (${billions(parameters)} + ${billions(trainable)} of adapters)`
        : `4 bytes × ${billions(parameters)} (fp32 master)`,
      trained: `${billions(trainable)} ${lora ? 'of adapters' : 'parameters'}`,
    },
  }
  // For a moment, the trainer holds all parameters of a layer and of the next one, in bf16.
  const gathered = (2 * 2 * (parameters / (s.layers + 2))) / gib
  const micro = train.microBatchTokens
  const perLayer = train.checkpointing ? 2 * s.hidden : 34 * s.hidden
  const activations = (micro * perLayer * s.layers + micro * (34 * s.hidden + 6 * s.intermediate)) / gib
  // Each logit of a chunk takes 4 + 2 bytes (float32 and bf16), and so does each entry of the head's gradient, which an
  // adapter (LoRA) does not need.
  const headRows = Math.min(micro, headChunkRows(s.vocabulary, 'cuda'))
  const headGradient = lora ? 0 : s.hidden
  const head = ((headRows + headGradient) * s.vocabulary * (4 + 2)) / gib
  const kvBytes = 2 * s.layers * s.kvHeads * s.headDim * 2
  const kvGib = Math.max(0, memoryGib * engineMemoryShare - weights)
  const kvTokens = Math.floor((kvGib * gib * tp) / kvBytes)
  const engines = Math.max(1, Math.floor(gpus / tp))

  const rollouts = rollout.groupsPerStep * rollout.groupSize
  const meanTokens = limits.responseTokens * meanShareOfBudget
  const sampled = rollouts * meanTokens
  const trained = rollout.groupsPerStep * selection.keep * meanTokens
  const running = Math.max(1, Math.min(Math.ceil(rollouts / engines), Math.floor(kvTokens / Math.max(1, meanTokens))))
  const bytesAStep = (2 * parameters) / tp + (running * meanTokens * kvBytes) / tp
  const tokensASecond = (engines * running * hardware.generationUtilization * hardware.bandwidthGBps * 1e9) / bytesAStep
  const generation = sampled / tokensASecond
  // FLOPs per parameter and token: 6 for forward and backward, 2 for recomputing activations; scoring the reference
  // once a step adds 2.
  const measuresKl = train.klCoef > 0
  const pass = train.checkpointing ? 8 : 6
  const flops = (pass * train.innerSteps + (measuresKl ? 2 : 0)) * parameters * trained
  const training = flops / (ranks * hardware.tflops * 1e12 * hardware.trainUtilization)
  const step = generation + training

  const memory: Figure[] = [
    figure('trainer: weights', states.weights, 'GiB a GPU', `${states.said.weights} / ${ranks} ranks`),
    figure('trainer: gradients', states.gradients, 'GiB a GPU', `4 bytes × ${states.said.trained} / ${ranks} ranks`),
    figure(
      'trainer: optimizer',
      states.optimizer,
      'GiB a GPU',
      `8 bytes × ${states.said.trained} / ${ranks} ranks (AdamW: two moments)`,
    ),
    figure('trainer: gathered layers', gathered, 'GiB a GPU', `2 layers × parameters of a layer × 2 bytes`),
    figure(
      'trainer: activations',
      activations,
      'GiB a GPU',
      `${micro} tokens × (${s.layers} layers × ${train.checkpointing ? '2' : '34'} × ${s.hidden} + one layer whole)`,
    ),
    figure(
      'trainer: head, in chunks',
      head,
      'GiB a GPU',
      `(${count(headRows)} tokens of a chunk${lora ? '' : ` + ${s.hidden} of the gradient`}) × ${s.vocabulary} × (4 + 2) bytes`,
    ),
    ...(train.innerSteps > 1
      ? [
          figure(
            'trainer: snapshot',
            (12 * trainable) / ranks / gib,
            'GiB of host a rank',
            `(4 + 8) bytes × ${states.said.trained} / ${ranks} ranks, to undo inner steps`,
          ),
        ]
      : []),
    ...(measuresKl
      ? [
          figure(
            'trainer: reference',
            (8 * trainable) / ranks / gib,
            'GiB of host a rank',
            `(4 + 4) bytes × ${states.said.trained} / ${ranks} ranks: the reference, and the policy while the reference is scored`,
          ),
        ]
      : []),
    figure('engine: weights', weights, 'GiB a GPU', `2 bytes × ${billions(parameters)} / tensor parallel ${tp}`),
    figure(
      'engine: KV cache',
      kvGib,
      'GiB a GPU',
      `${engineMemoryShare} × ${memoryGib} − weights; ${kvBytes} bytes a token: ${count(kvTokens)} tokens an engine`,
    ),
  ]
  const tokens: Figure[] = [
    figure('rollouts a step', rollouts, '', `${rollout.groupsPerStep} groups × ${rollout.groupSize}`),
    figure(
      'sampled tokens a step',
      sampled,
      '',
      `rollouts × ${meanShareOfBudget} × ${limits.responseTokens} (limits.responseTokens); at most ${count(rollouts * limits.responseTokens)}`,
    ),
    figure(
      'trained tokens a step',
      trained,
      '',
      `${rollout.groupsPerStep} groups × G = ${selection.keep} × the same mean`,
    ),
    figure('sampled tokens of the run', sampled * train.steps, '', `× ${train.steps} steps`),
  ]
  const time: Figure[] = [
    figure(
      'generation',
      generation,
      's a step',
      `${count(tokensASecond)} tokens/s: ${engines} engines × ${running} sequences × ${hardware.generationUtilization} × ${hardware.bandwidthGBps} GB/s / (weights + KV read a token)`,
    ),
    figure(
      'training',
      training,
      's a step',
      `${measuresKl ? `(${pass} × ${train.innerSteps} + 2 for the reference)` : `${pass} × ${train.innerSteps}`} × parameters × trained tokens / (${ranks} × ${hardware.tflops} TFLOPS × ${hardware.trainUtilization})`,
    ),
    figure('step', step, 's', 'generation + training; tools run beside generation'),
    figure('run', (step * train.steps) / 3600, 'h', `× ${train.steps} steps, without evaluations and the cold start`),
  ]
  const needed = states.weights + states.gradients + states.optimizer + gathered + activations + head
  const faults = [
    ...(needed > memoryGib
      ? [
          `the trainer needs ${needed.toFixed(1)} GiB of each GPU's ${memoryGib}: raise train.ranks, lower train.microBatchTokens, or set train.checkpointing or train.lora`,
        ]
      : []),
    ...(kvTokens < limits.contextTokens
      ? [
          `an engine's KV cache holds ${count(kvTokens)} tokens, but a context has ${limits.contextTokens}: raise hardware.tensorParallel`,
        ]
      : []),
    ...(gpus % tp === 0 ? [] : [`hardware.gpus ${gpus} is not a multiple of hardware.tensorParallel ${tp}`]),
    ...(train.ranks > gpus ? [`train.ranks ${train.ranks} exceeds hardware.gpus ${gpus}`] : []),
  ]
  return { parameters, memory, tokens, time, faults }
}

/**
 * Reads the shape from the transformers config of a dense decoder. A missing field gets a default of the Llama family.
 */
function shapeOf(config: Readonly<Record<string, unknown>>): Shape {
  const number = (name: string, otherwise: number) =>
    typeof config[name] === 'number' ? (config[name] as number) : otherwise
  const hidden = number('hidden_size', 4096)
  const heads = number('num_attention_heads', 32)
  return {
    hidden,
    heads,
    layers: number('num_hidden_layers', 32),
    kvHeads: number('num_key_value_heads', heads),
    headDim: number('head_dim', hidden / heads),
    intermediate: number('intermediate_size', 4 * hidden),
    vocabulary: number('vocab_size', 32_000),
    tied: config.tie_word_embeddings === true,
  }
}

function parametersOf(s: Shape): number {
  const attention = 2 * s.hidden * s.heads * s.headDim + 2 * s.hidden * s.kvHeads * s.headDim
  const layer = attention + 3 * s.hidden * s.intermediate + 2 * s.hidden
  return s.layers * layer + (s.tied ? 1 : 2) * s.vocabulary * s.hidden + s.hidden
}

/** Number of parameters of LoRA adapters on every linear layer of every block. */
function loraParameters(s: Shape, rank: number): number {
  const [q, kv] = [s.heads * s.headDim, s.kvHeads * s.headDim]
  const sides = 2 * (s.hidden + q) + 2 * (s.hidden + kv) + 3 * (s.hidden + s.intermediate)
  return s.layers * rank * sides
}

const figure = (what: string, value: number, unit: string, formula: string): Figure => ({ what, value, unit, formula })
const billions = (n: number) => `${(n / 1e9).toFixed(2)}e9`
const count = (n: number) => Math.round(n).toLocaleString('en-US')
