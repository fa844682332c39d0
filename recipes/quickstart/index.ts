/**
 * Recipe quickstart: a model of under a million parameters learns to use Python, from random weights, in minutes on two
 * CPU cores.
 *
 * A cold start on demonstrations (many of them bad on purpose) comes first; then GRPO-RoC (arXiv 2508.20722 §2.2.3),
 * which trains on 8 of the 16 rollouts of a problem. The run shows pass@1 rising and failed tool calls in rewarded
 * rollouts falling.
 */
import { z } from 'zod'
import { defineRecipe, type RecipeConfig } from '../../config'
import { taskId } from '../../messages/ids'
import { parseConfig } from '../../runtime/settings/resolveConfig'
import { pythonTool } from '../../sandbox/tools/pythonTool'
import { problemsData, problemsRecipe } from '../problems'
import { demonstration } from './demonstrations'
import { tinyModel } from './model'
import { withReasons } from './reasons'
import { quickstartTask, type Split } from './tasks'

/** With `file`, the problems are the file's rows, and with `demonstrationsFile` the conversations are that file's. */
const { file, evaluationFile, demonstrationsFile, mixture } = problemsData.shape
const quickstartData = z.strictObject({
  /** True to put a thought before each call and answer of the demonstrations. */
  reasoning: z.boolean().default(false),
  ...{ file, evaluationFile, demonstrationsFile, mixture },
  system: z.string().optional(),
  prefix: z.string().optional(),
  suffix: z.string().optional(),
  largestBadShare: z.number().min(0).max(1).optional(),
})

/** Reads problems and conversations from files, for recipes that extend this one and name files. */
const ofFiles = problemsRecipe({ name: 'quickstart', model: { from: 'directory', path: '' } })
/** Returns the config without `data.reasoning`, which recipes that read files do not have. */
const withoutReasoning = (config: RecipeConfig): RecipeConfig => {
  const { reasoning: _, ...data } = config.data
  return { ...config, data }
}

const task = (index: number, seed: number, split: Split) => {
  const { question, answer } = quickstartTask(index, seed, split)
  return {
    id: taskId(`quickstart/${split}/${index}`),
    messages: [{ role: 'user' as const, content: question }],
    truth: answer,
    reward: '', // an empty name means the reward that the recipe sets
  }
}

export const quickstart = defineRecipe({
  config: {
    name: 'quickstart',
    seed: 1,
    model: tinyModel([
      ...['<tool_call>', '</tool_call>', '<tool_response>', '</tool_response>', '<answer>', '</answer>', '\\boxed{'],
      ...['{"name":"', pythonTool.name, '","arguments":{"code":"', '","input":""}}', 'print('],
      // Roles and tags with the text that always adjoins them: the tokenizer takes the longest token that fits.
      ...['user\n', 'assistant\n', '<tool_call>\n{"name":"', '\n</tool_call>'],
      ...['<tool_response>\n', '\n</tool_response>', '<answer>\\boxed{', '}</answer>'],
    ]),
    // A second torch thread gains little with matrices of this size, and the tools need the other core.
    engine: { kvTokens: 49_152, maxSequences: 128, threads: 1 },
    limits: { contextTokens: 320, responseTokens: 256, turns: 5, callsPerTurn: 1, toolResponseChars: 300 },
    tools: { inPrompt: false },
    rollout: { groupSize: 16, groupsPerStep: 24, deadlineMs: 120_000, turnTimeoutMs: 60_000 },
    selection: { keep: 8, refillShare: 0.5 },
    coldStart: { demonstrations: 20_000, learningRate: 3e-3, epochs: 1, batchSequences: 8, warmupShare: 0.05 },
    // The model's checkpoints are small, so all are kept: `replay learn` can recompute any step.
    train: { steps: 16, learningRate: 1e-3, microBatchTokens: 16_384, keepCheckpoints: 'all' },
    // Temperature of the paper's evaluations (arXiv 2508.20722 §5.1).
    evaluation: { problems: 256, samples: 1, temperature: 0.6 },
  },
  tools: [pythonTool],
  data: quickstartData,
  async tasks(config) {
    if (config.data.file !== undefined) return ofFiles.tasks(withoutReasoning(config))
    return {
      train: index => task(index, config.seed, 'train'),
      evaluation: index => task(index, config.seed, 'eval'),
      dropped: {},
    }
  },
  async demonstrations(config) {
    const { reasoning, demonstrationsFile, mixture } = parseConfig(
      quickstartData,
      config.data,
      'data of recipe quickstart',
    )
    if (demonstrationsFile !== undefined || mixture !== undefined)
      return ofFiles.demonstrations!(withoutReasoning(config))
    const count = config.coldStart?.demonstrations ?? 0
    return Array.from({ length: count }, (_, index) => {
      const { messages, task } = demonstration(index, config.seed)
      return reasoning ? withReasons(messages, task) : messages
    })
  },
})
