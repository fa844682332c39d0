/**
 * Reduces a recipe so far that one real step takes seconds on a CPU.
 *
 * in   a resolved recipe, its model's transformers config, a chat template
 * out  the recipe with smaller sizes and counts; the list of changes
 * Invariant: the kind of architecture, the selection, the loss and the scheduler are the recipe's own; their smaller
 * sizes and counts are in the list. Tasks, demonstrations (conversations for the cold start), the reward (`math`) and
 * the recipe's `tools` (only Python) are the dry run's own, so no data is downloaded; `tools.functions` and MCP servers
 * stay. The list contains neither these replacements, nor fields of a short run on a CPU (such as the device, alarms
 * that stop, the interval of evaluations), nor sections that are left out (hardware, timeouts, trackers).
 */

import { type Recipe, type RecipeConfig, type RecipeInput, type RewardConfig, withoutUsual } from '../../config'
import { printToolCall } from '../../kernels/toolCalls/toolCalls'
import { toolResultText } from '../../kernels/toolCalls/toolText'
import type { ChatMessage, Task } from '../../messages/facts'
import { taskId } from '../../messages/ids'
import { deriveSeed } from '../../runtime/effects'
import { pythonTool } from '../../sandbox/tools/pythonTool'

export interface Reduced {
  readonly recipe: Recipe
  readonly config: RecipeInput
  /**
   * Changes to list in the report: sizes, counts, settings of the cold start and fields of the engine. `path`: the
   * recipe's field; `from`: the recipe's value; `to`: the dry run's value.
   */
  readonly changes: readonly { readonly path: string; readonly from: unknown; readonly to: unknown }[]
}

const demonstrations = 480
const contextTokens = 160

export function reduce(
  config: RecipeConfig,
  architecture: Readonly<Record<string, unknown>>,
  template: string,
): Reduced {
  const small = smallArchitecture(architecture, contextTokens)
  const keep = Math.min(config.selection.keep, 4)
  const groupSize = Math.min(config.rollout.groupSize, 2 * keep)
  const floor = (least: number) => Math.min(least, Math.floor(keep / 2))
  const { reward, stages, train } = config
  const values: Readonly<Record<string, unknown>> = {
    ...Object.fromEntries(Object.entries(small).map(([name, value]) => [`model.config.${name}`, value])),
    'limits.contextTokens': Math.min(config.limits.contextTokens, contextTokens),
    'limits.responseTokens': Math.min(config.limits.responseTokens, contextTokens / 2),
    'limits.turns': Math.min(config.limits.turns, 3),
    'rollout.groupSize': groupSize,
    'rollout.groupsPerStep': Math.min(config.rollout.groupsPerStep, 4),
    'selection.keep': keep,
    'selection.minPositive': floor(config.selection.minPositive),
    'selection.minNegative': floor(config.selection.minNegative),
    'selection.refillShare': 3,
    'coldStart.demonstrations': demonstrations,
    'coldStart.batchSequences': 8,
    'coldStart.epochs': 1,
    'coldStart.learningRate': 5e-3,
    'train.steps': Math.min(1, train.steps),
    'train.ranks': 1,
    'train.nodes': 1,
    'train.miniBatches': Math.min(train.miniBatches, Math.min(config.rollout.groupsPerStep, 4)),
    'train.threads': 1,
    'engine.threads': 1,
    'train.dtype': 'float32',
    // No adapters: beside frozen random weights they do not learn the answer's form from so few demonstrations.
    'train.lora': undefined,
    'train.microBatchTokens': Math.min(train.microBatchTokens, 2048),
    ...(train.overlong === undefined
      ? {}
      : { 'train.overlong.bufferTokens': Math.min(train.overlong.bufferTokens, contextTokens / 8) }),
    'evaluation.problems': Math.min(config.evaluation.problems, 4),
    'evaluation.samples': 1,
    'engine.kind': 'local',
    'engine.count': 1,
    'engine.dtype': 'float32',
    'engine.kvTokens': 8192,
    'engine.maxSequences': 32,
    stages: stages.length === 0 ? 'none' : `the first of ${stages.length}, without an end`,
  }
  const original = { ...config, model: { config: architecture } }
  const { promptTokens: _, ...limits } = config.limits
  const { urls: _urls, apiKey: _key, model: _name, ...engine } = config.engine
  const { hardware: _hardware, timeouts: _timeouts, trackers: _trackers, ...rest } = config
  const [first] = stages
  const reduced = {
    ...rest,
    model: {
      from: 'random',
      config: small,
      vocabulary: 512,
      addedTokens: ['<tool_call>', '</tool_call>', '<answer>', '</answer>', '\\boxed{', pythonTool.name],
      template,
    },
    data: {},
    tools: { ...config.tools, inPrompt: false },
    limits,
    engine: { ...engine, urls: [], device: 'cpu', launch: undefined },
    evaluation: { ...config.evaluation, limits: undefined, every: 0 },
    coldStart: { ...config.coldStart, toolsInPrompt: false },
    train: { ...train, device: 'cpu', checkpointEvery: 1 },
    // The reward is always `math`: the dry run's problems lack the data that the recipe's own reward may need.
    reward: {
      name: 'math',
      place: reward.place === 'response' ? 'answer-tag' : reward.place,
      timeoutMs: reward.timeoutMs,
    },
    stages: first === undefined ? [] : [{ name: first.name, resetOptimizer: false, updateReference: false }],
    alarms: withoutUsual(config.alarms).map(alarm => ({ ...alarm, stop: false })),
  }
  const set = Object.entries(values).filter(([path]) => !path.startsWith('model.') && path !== 'stages')
  for (const [path, value] of set) assign(reduced, path.split('.'), value)
  const changes = Object.entries(values).flatMap(([path, to]) => {
    const from = path === 'stages' ? stages.length : valueAt(original, path.split('.'))
    return from === to || (path === 'stages' && stages.length === 0) ? [] : [{ path, from, to }]
  })
  return {
    recipe: dryRecipe(reduced as unknown as RecipeInput, reward.place),
    config: reduced as unknown as RecipeInput,
    changes,
  }
}

/**
 * Architecture of the same kind with two narrow layers and a context of `positions` tokens. The ratio of query heads to
 * key heads is the recipe's, rounded up to 1, 2 or 4; a larger ratio becomes 4.
 */
export function smallArchitecture(
  config: Readonly<Record<string, unknown>>,
  positions: number,
): Readonly<Record<string, unknown>> {
  const heads = Number(config.num_attention_heads ?? 4)
  const kvHeads = Number(config.num_key_value_heads ?? heads)
  const own = new Set([
    'vocab_size',
    'layer_types',
    'max_window_layers',
    'bos_token_id',
    'eos_token_id',
    'pad_token_id',
  ])
  const kept = Object.entries(config).filter(([name]) => !own.has(name))
  const small = {
    hidden_size: 64,
    intermediate_size: 128,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    num_key_value_heads: Math.max(1, Math.min(4, 2 ** Math.floor(Math.log2((4 * kvHeads) / heads)))),
    max_position_embeddings: positions,
    // Larger initial weights let a narrow model learn to copy sooner.
    initializer_range: 0.08,
  }
  const experts = Object.fromEntries(
    ['num_experts', 'num_local_experts'].flatMap(name => (typeof config[name] === 'number' ? [[name, 4]] : [])),
  )
  const headDim = config.head_dim === undefined ? {} : { head_dim: 16 }
  return { ...Object.fromEntries(kept), ...small, ...headDim, ...experts }
}

function dryRecipe(config: RecipeInput, place: RewardConfig['place']): Recipe {
  const task = (index: number, split: 'train' | 'eval'): Task => ({
    id: taskId(`dry-run/${split}/${index}`),
    messages: [{ role: 'user', content: question(deriveSeed('dry-run', split, index)) }],
    truth: String(deriveSeed('dry-run/truth', split, index) % 2),
    reward: 'math',
  })
  return {
    config,
    tools: [pythonTool],
    tasks: async () => ({
      train: index => task(index, 'train'),
      evaluation: index => task(index, 'eval'),
      dropped: {},
    }),
    demonstrations: async () => Array.from({ length: demonstrations }, (_, k) => demonstration(k, place)),
  }
}

/**
 * Question with a random answer: a policy that knows the answer's form is right half of the time, so groups have mixed
 * rewards.
 */
const question = (seed: number) => `Toss coin ${seed % 10}.`

function demonstration(k: number, place: RewardConfig['place']): readonly ChatMessage[] {
  const seed = deriveSeed('dry-run/demonstration', k)
  const [side, uses] = [seed % 2, (seed >> 1) % 2 === 0]
  const code = `print(${side})`
  const result = { status: 'ok', exitCode: 0, signal: null, stdout: `${side}\n`, stderr: '' } as const
  const call: ChatMessage[] = [
    { role: 'assistant', content: printToolCall(pythonTool.name, { code, input: '' }) },
    { role: 'tool', content: toolResultText(result) },
  ]
  return [
    { role: 'user', content: question(seed >> 2) },
    ...(uses ? call : []),
    { role: 'assistant', content: answerIn(place, String(side)) },
  ]
}

/** A rollout's last text with the answer where the reward reads it (`reward.place`). */
export const answerIn = (place: RewardConfig['place'], answer: string): string =>
  place === 'hashes' ? `#### ${answer}` : `<answer>\\boxed{${answer}}</answer>`

export function assign(target: Record<string, unknown>, [key, ...rest]: readonly string[], value: unknown): void {
  if (rest.length === 0) target[key!] = value
  else {
    const inner = { ...(target[key!] as Record<string, unknown>) }
    target[key!] = inner
    assign(inner, rest, value)
  }
}

export const valueAt = (target: unknown, path: readonly string[]): unknown =>
  path.reduce<unknown>(
    (at, key) => (typeof at === 'object' && at !== null ? (at as Record<string, unknown>)[key] : undefined),
    target,
  )
