/**
 * Recipes rstar2…: the paper's numbers (arXiv 2508.20722 §4, §5.1) for Qwen3-14B-Base on 64 GPUs, the same for 8 GPUs,
 * the paper's numbers for Qwen2.5-32B-Instruct, and the released code's settings, which differ (docs/rstar2.md compares
 * both).
 *
 * `rstar2` and `rstar2-8gpu`: non-reasoning SFT on a mixture of function calling, instruction following and chat, then
 * three stages of GRPO-RoC. `rstar2-32b` has the first two stages and no SFT; `rstar2-release` has neither SFT nor
 * stages. `troupe data` makes the files that the recipes name from published sets.
 */
import { join } from 'node:path'
import type { Recipe, RecipeInput } from '../../config'
import { problemsRecipe } from '../problems'
import { qwen3At14b, qwen25At32b } from './architectures'

/**
 * Chat template whose generation prompt begins every turn of the model with `<reason>`, as the released code's does.
 */
const template = join(__dirname, '../templates/rstar2.jinja')

/** System message before the tools (`system`), and prefix of every problem (§2.2). */
const system = [
  'You solve problems for a user. Think about the problem first, inside <reason> and </reason>;',
  'then give the answer inside <answer> and </answer>. Calculate and check with the tool wherever that helps.',
].join(' ')
const prefix =
  'Put the answer inside <answer> </answer> tags; the result is read from the \\boxed{} in them.\nThis is the problem:\n'

/**
 * Each host starts vLLM servers on all its GPUs. They sleep while the trainer works, since the GPUs' memory cannot hold
 * both. Sleep discards their weights, since every step publishes new ones, and the trainer's weights and moments are in
 * the host's memory while the servers generate.
 */
const colocated = { kind: 'colocated', sleepLevel: 2 } as const

const mi300x = {
  name: 'MI300X 192 GB',
  gpus: 64,
  memoryGib: 192,
  tflops: 1307,
  bandwidthGBps: 5300,
  tensorParallel: 1,
  hostMemoryGib: 1536,
  plan: colocated,
} as const
const h100 = {
  name: 'H100 80 GB',
  gpus: 8,
  memoryGib: 80,
  tflops: 989,
  bandwidthGBps: 3350,
  tensorParallel: 2,
  hostMemoryGib: 1024,
  plan: colocated,
} as const

/** Deadlines in ms, above the dry run's estimates of the longest rollouts and turns of these recipes. */
const patience = { deadlineMs: 3_600_000, turnTimeoutMs: 3_600_000 } as const

const paper = {
  name: 'rstar2',
  seed: 1,
  model: { from: 'directory', path: 'models/Qwen3-14B-Base', template, architecture: qwen3At14b },
  data: {
    // Problems with integer answers, in one file made by `troupe data dapo`, `aops`, …; the paper's has 42K problems.
    file: 'data/rstar2.train.jsonl',
    evaluationFile: 'data/aime.jsonl',
    // Mixture of the paper's §4.1: 165K conversations of function calling, 30K of instruction following, 27K of chat.
    mixture: [
      { file: 'data/sft.toolace.jsonl', count: 11_000 },
      { file: 'data/sft.apigen-mt.jsonl', count: 5000 },
      { file: 'data/sft.glaive.jsonl', count: 101_000 },
      { file: 'data/sft.magicoder.jsonl', count: 48_000 },
      { file: 'data/sft.tulu3-if.jsonl', count: 30_000 },
      { file: 'data/sft.nemotron-chat.jsonl', count: 27_000 },
    ],
    system,
    prefix,
  },
  // `count`: servers on each host. Their KV cache takes what the weights leave of hardware.engineMemoryShare.
  engine: { kind: 'vllm', launch: {}, count: 8, dtype: 'bfloat16', maxSequences: 128 },
  // Stage 1 has 8K response tokens, set below. T (turns) is 10, and 15 in stage 3 (§5.1).
  limits: { contextTokens: 12_288, responseTokens: 12_288, turns: 10, callsPerTurn: 1, toolTimeoutMs: 4000 },
  // The deadlines (`patience`) allow a turn of an evaluation 30K tokens, and a training rollout 12K, on a full engine.
  rollout: { groupSize: 32, groupsPerStep: 512, sampling: { temperature: 1 }, ...patience },
  selection: { variant: 'paper', keep: 16, minPositive: 2, minNegative: 2, refillShare: 0 },
  // `literal`: an expression that restates the problem is no answer, since all problems have integer answers.
  reward: { name: 'math', place: 'answer-tag', literal: true },
  coldStart: {
    demonstrations: 222_000,
    learningRate: 5e-6,
    epochs: 3,
    batchSequences: 128,
    warmupShare: 0.04,
    // Prompts of the cold start describe no tools, because the mixture's conversations describe their own.
    toolsInPrompt: false,
  },
  train: {
    steps: 510,
    learningRate: 1e-6,
    warmupSteps: 20,
    // Loss of the paper's eq. 6: divided by the group's tokens, without KL or entropy term.
    lossNorm: 'group-tokens',
    clipLow: 0.2,
    clipHigh: 0.28,
    dtype: 'bfloat16',
    checkpointing: true,
    ranks: 64,
    // 8 GPUs a host. The user has to name an address at which the hosts meet: --set train.rendezvous=HOST:PORT.
    nodes: 8,
    checkpointEvery: 10,
    keepVersions: 2,
  },
  stages: [
    { name: 'concise', limits: { contextTokens: 8192, responseTokens: 8192 }, until: { steps: 300 } },
    { name: 'longer', until: { steps: 85 } },
    {
      name: 'difficult',
      limits: { turns: 15 },
      problems: { samples: 8, maxSolved: 7 },
      resetOptimizer: true,
      updateReference: true,
    },
  ],
  // Evaluation of the paper's §5.1: 30K tokens, at most 30 turns, temperature 0.6, mean of 16 samples. AIME 24 and 25
  // have 30 problems each.
  evaluation: {
    ...{ problems: 60, samples: 16, temperature: 0.6, every: 50 },
    limits: { contextTokens: 32_768, responseTokens: 30_000, turns: 30 },
  },
  // Alarms for the failure of the paper's §5.3: policy and reward collapsed after step 510.
  alarms: [
    { name: 'entropy-collapse' },
    { name: 'reward-collapse' },
    { name: 'engine-mismatch' },
    { name: 'tool-errors' },
  ],
  hardware: mi300x,
} as const satisfies RecipeInput

/** The recipe rstar2 on one machine of 8 GPUs. The batch is the paper's, so a step takes longer in proportion. */
const on8Gpus = {
  ...paper,
  name: 'rstar2-8gpu',
  engine: { ...paper.engine, count: 4 },
  train: { ...paper.train, ranks: 8, nodes: 1, microBatchTokens: 12_288 },
  hardware: h100,
} as const satisfies RecipeInput

/**
 * The paper's run on Qwen2.5-32B-Instruct (§5.2, table 3): stages 1 and 2, 700 steps. No SFT, because the model already
 * follows instructions.
 */
const { coldStart: _sft, ...withoutSft } = paper
const at32b = {
  ...withoutSft,
  name: 'rstar2-32b',
  model: { from: 'directory', path: 'models/Qwen2.5-32B-Instruct', template, architecture: qwen25At32b },
  data: { file: paper.data.file, evaluationFile: paper.data.evaluationFile, system, prefix },
  engine: { ...paper.engine, count: 4 },
  train: { ...paper.train, steps: 700 },
  stages: [paper.stages[0], { name: 'longer' }],
  hardware: { ...mi300x, tensorParallel: 2 },
} as const satisfies RecipeInput

/**
 * Settings of the public code's script for 8 GPUs: fewer prompts, 5 turns, short tool answers, its own selection,
 * evaluations at temperature 0.
 */
const release = {
  name: 'rstar2-release',
  seed: 1,
  // The model must be one after the user's own SFT: the released code starts RL from such a model, whose weights are
  // not published.
  model: { ...paper.model, path: 'models/Qwen3-14B-SFT' },
  data: { file: paper.data.file, evaluationFile: paper.data.evaluationFile, system, prefix },
  engine: { ...paper.engine, count: 2 },
  limits: {
    ...{ contextTokens: 10_240, promptTokens: 2048, responseTokens: 8192 },
    ...{ turns: 5, callsPerTurn: 1, toolTimeoutMs: 4000, toolResponseChars: 256 },
  },
  rollout: { groupSize: 32, groupsPerStep: 128, sampling: { temperature: 1 }, ...patience },
  selection: { variant: 'release', keep: 16, minPositive: 2, minNegative: 2, refillShare: 0 },
  // Place of the answer: the released grader looks for it in the whole response.
  reward: { name: 'math', place: 'anywhere', literal: true },
  train: {
    ...{
      steps: 200,
      learningRate: 1e-6,
      warmupSteps: 20,
      clipLow: 0.2,
      clipHigh: 0.28,
      lossNorm: 'batch-tokens',
      dualClip: 3,
    },
    ...{
      dtype: 'bfloat16',
      checkpointing: true,
      ranks: 8,
      microBatchTokens: 12_288,
      checkpointEvery: 10,
      keepVersions: 2,
    },
  },
  evaluation: {
    ...{ problems: 60, samples: 16, temperature: 0, every: 5 },
    limits: { contextTokens: 32_768, responseTokens: 30_720, turns: 5 },
  },
  alarms: paper.alarms,
  hardware: { ...h100, tensorParallel: 4 },
} as const satisfies RecipeInput

export const rstar2: ReadonlyMap<string, Recipe> = new Map(
  [paper, on8Gpus, at32b, release].map(config => [config.name, problemsRecipe(config as RecipeInput)]),
)
