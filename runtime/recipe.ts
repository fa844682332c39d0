/**
 * A recipe: what to train, on what, with which numbers. Plain data, checked by zod, and a few functions that yield
 * tasks and demonstrations. The resolved data goes into `run.started`; the functions are found again by the recipe's name.
 *
 * Units stand in the names; tokens where nothing is said. Defaults are the paper's (arXiv 2508.20722 §4.3, §5.1) where
 * it has them.
 */
import { z } from 'zod'
import type { ChatMessage, Task } from '../messages/facts'
import { isHttpUrl } from './engines/address'
import type { ToolSchema } from './renderer'
import { secretSchema } from './secret'

const positive = z.number().int().positive()
const count = z.number().int().nonnegative()

const limits = z.strictObject({
  contextTokens: positive.default(8192),
  responseTokens: positive.default(8192),
  turns: positive.default(10),
  callsPerTurn: positive.default(1),
  toolTimeoutMs: positive.default(4000),
  toolResponseChars: positive.default(2000),
})

const sampling = z.strictObject({
  temperature: z.number().nonnegative().default(1),
  topP: z.number().positive().max(1).default(1),
  topK: count.default(0),
  minP: z.number().min(0).max(1).default(0),
})

const model = z.discriminatedUnion('from', [
  z.strictObject({
    from: z.literal('directory'),
    /** A directory that `transformers` loads. */
    path: z.string(),
    /** Chat template file; default: the directory's own. */
    template: z.string().optional(),
  }),
  z.strictObject({
    from: z.literal('random'),
    /** A transformers config, `model_type` first of all. */
    config: z.record(z.string(), z.unknown()),
    /** Size of the BPE vocabulary that is trained on the demonstrations. */
    vocabulary: positive,
    /** Texts that are one token each. */
    addedTokens: z.array(z.string()).default([]),
    template: z.string(),
  }),
])

const fields = z.strictObject({
  name: z.string(),
  seed: count.default(1),
  model,
  engine: z
    .strictObject({
      kind: z.enum(['local', 'vllm', 'sglang', 'openai']).default('local'),
      /** Of servers, an engine each; what is said here of sizes and types is then the servers' own to say. */
      urls: z.array(z.string()).max(64).default([]),
      /** Where a server's --api-key is. */
      apiKey: secretSchema.optional(),
      /** Which of its models an OpenAI-compatible server is asked for. Default: the first that it names. */
      model: z.string().optional(),
      /** How an SGLang server is paused for new weights. */
      pause: z.enum(['abort', 'retract', 'in_place']).default('abort'),
      count: positive.max(8).default(1),
      kvTokens: positive.default(65_536),
      blockTokens: positive.default(16),
      maxSequences: positive.default(64),
      deterministic: z.boolean().default(false),
      dtype: z.enum(['float32', 'bfloat16']).default('float32'),
      device: z.string().default('auto'),
      threads: positive.default(2),
    })
    .prefault({}),
  scheduler: z
    .strictObject({
      policy: z.enum(['static', 'static-async', 'least-requests', 'kv-headroom']).default('kv-headroom'),
    })
    .prefault({}),
  data: z.record(z.string(), z.unknown()).default({}),
  tools: z
    .strictObject({
      names: z.array(z.string()).default(['execute_python_code_with_standard_io']),
      /** Whether the prompt describes the tools, as hermes templates do. */
      inPrompt: z.boolean().default(true),
      lanes: positive.optional(),
      memoryMb: positive.default(512),
    })
    .prefault({}),
  limits: limits.prefault({}),
  rollout: z
    .strictObject({
      /** 2G: rollouts of one task. */
      groupSize: positive.min(2).default(32),
      groupsPerStep: positive.default(512),
      sampling: sampling.prefault({}),
      deadlineMs: positive.default(1_800_000),
      /** A turn without any answer is asked again after this. */
      turnTimeoutMs: positive.default(600_000),
      maxStaleness: count.default(0),
    })
    .prefault({}),
  selection: z
    .strictObject({
      variant: z.enum(['paper', 'release', 'none']).default('paper'),
      /** G: rollouts of a group that are trained on. */
      keep: positive.min(2).default(16),
      minPositive: count.default(2),
      minNegative: count.default(2),
      rejectEqual: z.boolean().default(true),
      errorRatio: z.boolean().default(true),
      answerFormat: z.boolean().default(true),
      /** Groups that may be asked for in place of rejected ones, as a share of groupsPerStep. */
      refillShare: z.number().nonnegative().default(1),
    })
    .prefault({}),
  reward: z
    .strictObject({
      name: z.string().default('math'),
      /** Where `\boxed{}` counts: inside the last `<answer>` (paper) or anywhere (release). */
      place: z.enum(['answer-tag', 'anywhere']).default('answer-tag'),
      timeoutMs: positive.default(10_000),
    })
    .prefault({}),
  coldStart: z
    .strictObject({
      demonstrations: positive,
      learningRate: z.number().positive().default(5e-6),
      epochs: positive.default(3),
      batchSequences: positive.default(128),
      warmupShare: z.number().min(0).max(1).default(0.04),
      maxGradNorm: z.number().positive().default(1),
    })
    .optional(),
  train: z
    .strictObject({
      /** 0: an evaluation and nothing else. */
      steps: count.default(300),
      learningRate: z.number().positive().default(1e-6),
      clipLow: z.number().positive().default(0.2),
      clipHigh: z.number().positive().default(0.28),
      lossNorm: z.enum(['batch-tokens', 'group-tokens']).default('batch-tokens'),
      innerSteps: positive.default(1),
      microBatchTokens: positive.default(16_384),
      tisCap: z.number().nonnegative().default(0),
      maxGradNorm: z.number().positive().default(1),
      checkpointEvery: positive.default(1),
      /** Published versions and checkpoints that are kept besides the newest. */
      keepVersions: positive.default(3),
      device: z.string().default('auto'),
      dtype: z.enum(['float32', 'bfloat16']).default('float32'),
      threads: positive.default(2),
    })
    .prefault({}),
  evaluation: z
    .strictObject({
      problems: count.default(0),
      samples: positive.default(1),
      temperature: z.number().nonnegative().default(0.6),
      /** Steps between evaluations; 0: before the first and after the last step only. */
      every: count.default(0),
    })
    .prefault({}),
})

/** The fields, and what must hold between them. */
export const recipeSchema = fields.superRefine((recipe, ctx) => {
  const refuse = (path: string[], message: string) => ctx.addIssue({ code: 'custom', path, message })
  const { rollout, selection, limits, engine } = recipe
  const { topP, topK, minP, temperature } = rollout.sampling
  if (topP < 1) refuse(['rollout', 'sampling', 'topP'], 'must be 1: the loss is of the whole distribution')
  if (topK > 0) refuse(['rollout', 'sampling', 'topK'], 'must be 0: the loss is of the whole distribution')
  if (minP > 0) refuse(['rollout', 'sampling', 'minP'], 'must be 0: the loss is of the whole distribution')
  if (temperature === 0)
    refuse(['rollout', 'sampling', 'temperature'], 'must be above 0: greedy rollouts of a group are equal')
  if (selection.keep > rollout.groupSize) {
    refuse(
      ['selection', 'keep'],
      `keeps ${selection.keep} of a group of ${rollout.groupSize}; lower it or raise rollout.groupSize`,
    )
  }
  if (selection.minPositive + selection.minNegative > selection.keep) {
    refuse(
      ['selection', 'minPositive'],
      `minPositive and minNegative are more than the ${selection.keep} that are kept`,
    )
  }
  const isLocal = engine.kind === 'local'
  if (isLocal && engine.urls.length > 0) refuse(['engine', 'urls'], 'local engines have none; set engine.kind')
  if (!isLocal && engine.urls.length === 0) refuse(['engine', 'urls'], `names no ${engine.kind} server`)
  const wrong = engine.urls.find(url => !isHttpUrl(url))
  if (wrong !== undefined) refuse(['engine', 'urls'], `'${wrong}' is no http or https URL, or has a password in it`)
  if (isLocal && limits.contextTokens > engine.kvTokens) {
    refuse(
      ['limits', 'contextTokens'],
      `a context of ${limits.contextTokens} does not fit engine.kvTokens (${engine.kvTokens})`,
    )
  }
})

/** A recipe's data with every default filled in. */
export type RecipeConfig = z.output<typeof recipeSchema>
export type RecipeInput = z.input<typeof recipeSchema>

/** Tasks by index, so that a cursor in a fact says which come next. */
export interface TaskSource {
  /** Wraps around when the index passes the end: the source says in which order then. */
  train(index: number): Task
  /** Never trained on; index < evaluation.problems. */
  evaluation(index: number): Task
  /** Rows that were left out, by reason. */
  readonly dropped: Readonly<Record<string, number>>
}

export interface Recipe {
  readonly config: RecipeInput
  readonly tools: readonly ToolSchema[]
  tasks(config: RecipeConfig): Promise<TaskSource>
  /** Conversations for the cold start, and for the tokenizer of a model that begins from random weights. */
  demonstrations?(config: RecipeConfig): Promise<readonly (readonly ChatMessage[])[]>
}

/** A recipe, as it is written down: checks nothing yet, but gives the fields their types. */
export const defineRecipe = (recipe: Recipe): Recipe => recipe
