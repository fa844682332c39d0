/**
 * The recipe of a rehearsal: the recipe's own numbers, on a small random model and simulated engines.
 *
 * in   a resolved recipe, its model's architecture, the engines of its hardware, how many steps to rehearse
 * out  the recipe to run; the list of fields that differ
 * Invariant: groups, rollouts, contexts, turns, selection, staleness, deadlines, loss, retention and the rules of
 * alarms are the recipe's. Every other field that differs is in the list, except the trackers (none), the model's
 * source, vocabulary, added tokens and template, the fields that name or start the recipe's engines, `entropies`, and
 * switches of a run on a CPU (device, dtype, threads, alarms that stop). Problems, demonstrations and the reward
 * (`math`) are the rehearsal's own.
 */
import { longestContext, type Recipe, type RecipeConfig, type RecipeInput, withoutUsual } from '../../config'
import type { ChatMessage, Task } from '../../messages/facts'
import { taskId } from '../../messages/ids'
import { pythonTool } from '../../sandbox/tools/pythonTool'
import { assign, smallArchitecture, valueAt } from '../dryRun/reduced'
import { scriptTexts, truth } from './script'

/** A field of the recipe that the rehearsal changes. */
export interface Change {
  /** Path of the field, such as `train.ranks`. */
  readonly path: string
  readonly from: unknown
  readonly to: unknown
}

export interface Rehearsed {
  readonly recipe: Recipe
  readonly config: RecipeInput
  readonly changes: readonly Change[]
}

export interface RehearsedOptions {
  readonly steps: number
  /** True: every stage is shortened to `steps` steps. False: only the run's first `steps` steps are rehearsed. */
  readonly allStages: boolean
  readonly engines: number
  readonly engineModelFile: string
  readonly template: string
}

export const vocabulary = 512
/** Number of cold-start conversations: enough for the cold start's code to run, fewer than in the real run. */
const demonstrations = 64
/** Number of problems of the rehearsal's source, as many as the paper's set has. */
const problems = 42_000

export function rehearsed(
  config: RecipeConfig,
  architecture: Readonly<Record<string, unknown>>,
  options: RehearsedOptions,
): Rehearsed {
  const { stages, train, reward, evaluation, rollout } = config
  const { allStages, engines, engineModelFile, template } = options
  // Small initial weights make the model's distribution nearly uniform, as the simulated engines' log-probabilities
  // are.
  const small = { ...smallArchitecture(architecture, longestContext(config)), initializer_range: 0.02 }
  const steps = Math.min(train.steps, allStages ? options.steps * Math.max(1, stages.length) : options.steps)
  const values: Readonly<Record<string, unknown>> = {
    ...Object.fromEntries(Object.entries(small).map(([name, value]) => [`model.config.${name}`, value])),
    'train.steps': steps,
    'train.ranks': 1,
    'train.nodes': 1,
    // At most the number of steps, so that at least one checkpoint is written.
    'train.checkpointEvery': Math.min(train.checkpointEvery, Math.max(1, steps)),
    ...(config.coldStart === undefined
      ? {}
      : { 'coldStart.demonstrations': demonstrations, 'coldStart.epochs': 1, 'coldStart.batchSequences': 32 }),
    'engine.count': engines,
  }
  const { urls: _urls, apiKey: _key, model: _name, pause: _pause, launch: _launch, ...engine } = config.engine
  const own = {
    ...config,
    model: { from: 'random', config: small, vocabulary, addedTokens: ['<tool_call>', '</tool_call>'], template },
    data: {},
    engine: { ...engine, kind: 'simulated', modelFile: engineModelFile, entropies: false, urls: [] },
    train: { ...train, device: 'cpu', dtype: 'float32', threads: 2 },
    // The reward is always `math`: the rehearsal's problems lack the data that the recipe's own reward may need.
    reward: {
      name: 'math',
      place: reward.place === 'response' ? 'answer-tag' : reward.place,
      timeoutMs: reward.timeoutMs,
    },
    stages: allStages ? stages.map((stage, at) => shortened(stage, at, stages.length, options.steps, rollout)) : stages,
    evaluation: evaluation.every > 0 && allStages ? { ...evaluation, every: options.steps } : evaluation,
    // Simulated engines hold no GPU, so engines and trainer need no plan for sharing the GPUs.
    ...(config.hardware === undefined ? {} : { hardware: { ...config.hardware, plan: undefined } }),
    trackers: undefined,
    alarms: withoutUsual(config.alarms).map(alarm => ({ ...alarm, stop: false })),
  }
  for (const [path, value] of Object.entries(values)) {
    if (!path.startsWith('model.')) assign(own as unknown as Record<string, unknown>, path.split('.'), value)
  }
  const original = { ...config, model: { config: architecture } }
  const changes = [
    ...Object.entries(values).map(([path, to]) => ({ path, from: valueAt(original, path.split('.')), to })),
    { path: 'hardware.plan', from: config.hardware?.plan?.kind, to: undefined },
    { path: 'evaluation.every', from: evaluation.every, to: own.evaluation.every },
    ...(allStages ? stages.flatMap((stage, at) => stageChanges(stage, own.stages[at]!, at)) : []),
  ].filter(({ from, to }) => from !== to)
  const input = own as unknown as RecipeInput
  return { recipe: rehearsalRecipe(input, config), config: input, changes }
}

type Stage = RecipeConfig['stages'][number]

/**
 * Returns the stage with an end after `steps` steps; the last stage ends with the run instead. If the stage measures
 * problems before it begins, it measures at most as many as a step has groups.
 */
function shortened(
  stage: Stage,
  at: number,
  stages: number,
  steps: number,
  { groupsPerStep }: RecipeConfig['rollout'],
): Stage {
  const { until: _until, problems: measured, ...rest } = stage
  const until = at < stages - 1 ? { until: { steps, for: 1 } } : {}
  if (measured === undefined) return { ...rest, ...until }
  const count = Math.min(measured.count ?? groupsPerStep, groupsPerStep)
  return { ...rest, ...until, problems: { ...measured, count } }
}

const stageChanges = (from: Stage, to: Stage, at: number): readonly Change[] => [
  { path: `stages.${at}.until.steps`, from: from.until?.steps, to: to.until?.steps },
  {
    path: `stages.${at}.problems.count`,
    from: from.problems?.count ?? (from.problems && 'all'),
    to: to.problems?.count,
  },
]

function rehearsalRecipe(config: RecipeInput, { data, reward }: RecipeConfig): Recipe {
  const text = (name: string) => (typeof data[name] === 'string' ? (data[name] as string) : '')
  const messages = (problem: string): readonly ChatMessage[] => [
    ...(text('system') === '' ? [] : [{ role: 'system' as const, content: text('system') }]),
    { role: 'user', content: `${text('prefix')}${problem}${text('suffix')}` },
  ]
  const task = (index: number, split: 'train' | 'eval'): Task => ({
    id: taskId(`rehearsal/${split}/${index}`),
    messages: messages(problemText(index)),
    truth,
    reward: 'math',
  })
  return {
    config,
    tools: [pythonTool],
    tasks: async () => ({
      train: index => task(index % problems, 'train'),
      evaluation: index => task(index, 'eval'),
      dropped: {},
      size: problems,
    }),
    demonstrations: async () =>
      Array.from({ length: demonstrations }, (_, k) => [
        ...messages(problemText(k)),
        { role: 'assistant' as const, content: scriptTexts(reward.place).join('\n') },
      ]),
  }
}

/** Returns the text of a problem, about as long as the problems of the paper's data. */
const problemText = (index: number) =>
  `Problem ${index}. Let n be a positive integer with exactly ${2 + (index % 11)} divisors, and let f(k) be the number of ways to write k as a sum of two of them. Find the remainder of f(1) + f(2) + ... + f(n) when it is divided by ${7 + (index % 89)}.`
