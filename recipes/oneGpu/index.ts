/**
 * Recipes for one GPU, to start from and to compare: GSM8K with the Python tool for Qwen2.5-0.5B-Instruct (24 GB) and
 * Qwen2.5-1.5B-Instruct (80 GB), each by GRPO-RoC and by GRPO, and competition problems for Qwen3-4B with LoRA (80 GB).
 *
 * in   files that `troupe data` makes; model directories       out  recipes by name
 * docs/one-gpu.md has the published figures to compare with, and says which of these recipes have run on their
 * hardware.
 */
import { join } from 'node:path'
import type { Recipe, RecipeInput } from '../../config'
import { problemsRecipe } from '../problems'
import { qwen3At4b, qwen25At05b, qwen25At15b } from './architectures'

const template = join(__dirname, '../templates/hermes.jinja')

/** The engine sleeps while the trainer computes, and its weights are loaded anew when it wakes. */
const plan = { kind: 'colocated', sleepLevel: 2 } as const
/** One vLLM server that the run starts and ends itself. */
const vllm = { kind: 'vllm', launch: {}, dtype: 'bfloat16' } as const

const rtx4090 = {
  name: 'RTX 4090 24 GB',
  plan,
  gpus: 1,
  gpusPerHost: 1,
  memoryGib: 24,
  tflops: 165,
  bandwidthGBps: 1008,
} as const
const h100 = {
  name: 'H100 80 GB',
  plan,
  gpus: 1,
  gpusPerHost: 1,
  memoryGib: 80,
  tflops: 989,
  bandwidthGBps: 3350,
} as const

/** A step has 64 problems × 16 rollouts = 1,024 rollouts; 230 steps are two passes over the 7,379 problems of GSM8K. */
const gsm8k = {
  seed: 1,
  data: {
    file: 'data/gsm8k.train.jsonl',
    evaluationFile: 'data/gsm8k.test.jsonl',
    suffix: '\n\nCalculate with the tool where that helps. Write the result on the last line, as #### and the number.',
  },
  limits: { contextTokens: 2048, responseTokens: 1024, turns: 4, callsPerTurn: 1, toolTimeoutMs: 4000 },
  rollout: { groupSize: 16, groupsPerStep: 64, sampling: { temperature: 1 } },
  // GSM8K's strict rule: only the number after `####` counts. `replay rescore --place last-number` applies the lenient
  // rule to the same responses.
  reward: { name: 'math', place: 'hashes', literal: true },
  train: {
    ...{ steps: 230, learningRate: 1e-6, warmupSteps: 10, lossNorm: 'group-tokens', clipLow: 0.2, clipHigh: 0.28 },
    ...{ dtype: 'bfloat16', checkpointing: true, microBatchTokens: 16_384, checkpointEvery: 23 },
  },
  // All 1,319 test problems, greedily, after each tenth of the run.
  evaluation: { problems: 1319, samples: 1, temperature: 0, every: 23 },
  alarms: [{ name: 'entropy-collapse' }, { name: 'reward-collapse' }, { name: 'engine-mismatch' }],
} as const satisfies Partial<RecipeInput>

/**
 * GRPO-RoC trains on 8 of 16 rollouts. `answerFormat` is off, since answers have no `<answer>` tag here: the format
 * penalty would be 1 for all of them.
 */
const roc = { variant: 'paper', keep: 8, minPositive: 2, minNegative: 2, answerFormat: false } as const
/** GRPO, sampled as for RoC: all 16 rollouts of a problem are trained on. */
const grpo = { variant: 'none', keep: 16, minPositive: 0, minNegative: 0 } as const

const at05b = {
  ...gsm8k,
  name: 'gsm8k-qwen2.5-0.5b',
  model: { from: 'directory', path: 'models/Qwen2.5-0.5B-Instruct', template, architecture: qwen25At05b },
  selection: roc,
  engine: { ...vllm, maxSequences: 256 },
  hardware: rtx4090,
} as const satisfies RecipeInput

const at15b = {
  ...gsm8k,
  name: 'gsm8k-qwen2.5-1.5b',
  model: { from: 'directory', path: 'models/Qwen2.5-1.5B-Instruct', template, architecture: qwen25At15b },
  selection: roc,
  engine: { ...vllm, maxSequences: 512 },
  hardware: h100,
} as const satisfies RecipeInput

/** Competition problems with integer answers, trained with LoRA adapters, which need less memory than all weights. */
const at4b = {
  name: 'math-qwen3-4b-lora',
  seed: 1,
  model: { from: 'directory', path: 'models/Qwen3-4B', template, architecture: qwen3At4b },
  data: {
    file: 'data/dapo.jsonl',
    evaluationFile: 'data/aime.jsonl',
    system: 'Solve the problem. Calculate and check with the tool, then answer as <answer>\\boxed{N}</answer>.',
  },
  engine: { ...vllm, maxSequences: 128 },
  limits: { contextTokens: 10_240, promptTokens: 2048, responseTokens: 8192, turns: 8, toolTimeoutMs: 4000 },
  // turnTimeoutMs: a turn of an evaluation may sample 16K tokens.
  rollout: { groupSize: 16, groupsPerStep: 32, sampling: { temperature: 1 }, turnTimeoutMs: 1_800_000 },
  selection: { variant: 'paper', keep: 8, minPositive: 2, minNegative: 2, refillShare: 0 },
  reward: { name: 'math', place: 'answer-tag', literal: true },
  train: {
    ...{ steps: 200, learningRate: 1e-5, warmupSteps: 10, lossNorm: 'group-tokens', clipLow: 0.2, clipHigh: 0.28 },
    ...{ dtype: 'bfloat16', checkpointing: true, microBatchTokens: 10_240, checkpointEvery: 20 },
    lora: { rank: 32, alpha: 64, targets: ['all-linear'] },
  },
  evaluation: {
    ...{ problems: 60, samples: 16, temperature: 0.6, every: 20 },
    limits: { contextTokens: 18_432, responseTokens: 16_384, turns: 16 },
  },
  alarms: gsm8k.alarms,
  hardware: h100,
} as const satisfies RecipeInput

export const oneGpu: ReadonlyMap<string, Recipe> = new Map(
  [
    at05b,
    { ...at05b, name: 'gsm8k-qwen2.5-0.5b-grpo', selection: grpo },
    at15b,
    { ...at15b, name: 'gsm8k-qwen2.5-1.5b-grpo', selection: grpo },
    at4b,
  ].map(config => [config.name, problemsRecipe(config as RecipeInput)]),
)
