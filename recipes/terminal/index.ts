/**
 * Recipe terminal: an agent works in a shell on the files of Harbor tasks; the verifier of each task gives the reward.
 *
 * `--set tasks=DIR` names one task directory, or a directory of them; without it the tasks are Troupe's own suite. A
 * cold start teaches the format of calls: the model imitates the tasks' oracle solutions, which run in their
 * environments first.
 */
import { join } from 'node:path'
import { z } from 'zod'
import { defineRecipe, type RecipeConfig } from '../../config'
import { bashTool, editorTool, mcpTool, submitTool } from '../../environments/tools/schemas'
import { parseConfig } from '../../runtime/settings/resolveConfig'

const call = (name: string, args: object) => `<tool_call>\n${JSON.stringify({ name, arguments: args })}\n</tool_call>`

/** System message that shows the tool calls by example; the tools' schemas would take 600 tokens of every prompt. */
const system = [
  'You work in a Linux shell on the task that the user gives. Call one tool a turn; its output comes back to you.',
  `Run a command:\n${call(bashTool.name, { command: 'ls' })}`,
  `Write a file:\n${call(editorTool.name, { command: 'create', path: '/app/a.txt', file_text: 'text' })}`,
  `When the task is done:\n${call(submitTool.name, {})}`,
].join('\n')

export const terminalData = z.strictObject({
  /** A task directory in Harbor's format, or a directory of them. Default: the suite of `troupe tasks suite`. */
  tasks: z.string().optional(),
  /** System message; an empty text means no system message. */
  system: z.string().default(system),
})

const dataOf = (config: RecipeConfig) => parseConfig(terminalData, config.data, `data of recipe ${config.name}`)

// These modules are loaded at their first use: most runs have another recipe, and need no environments.
const sources = () => require('./tasks') as typeof import('./tasks')
const suite = () => require('./suite') as typeof import('./suite')
const demonstrations = () => require('./demonstrations') as typeof import('./demonstrations')

const splitOf = async (config: RecipeConfig) => {
  const { tasks = suite().suiteDirectory(), system } = dataOf(config)
  const { splitTasks, terminalTasks } = sources()
  return splitTasks(await terminalTasks(tasks, system, config.environments), config.evaluation.problems)
}

export const terminal = defineRecipe({
  config: {
    name: 'terminal',
    seed: 1,
    model: {
      from: 'directory',
      path: '.troupe/models/smollm2-135m-instruct',
      template: join(__dirname, '../templates/hermes.jinja'),
    },
    data: {},
    engine: { kvTokens: 32_768, maxSequences: 32 },
    limits: {
      ...{ contextTokens: 2048, responseTokens: 1024, turns: 8, callsPerTurn: 4 },
      ...{ toolTimeoutMs: 30_000, toolResponseChars: 1000 },
    },
    tools: { inPrompt: false },
    reward: { name: 'verifier' },
    rollout: { groupSize: 8, groupsPerStep: 4 },
    // The model is not asked for <answer> tags, so the penalty for a wrong answer format is off.
    selection: { keep: 4, answerFormat: false },
    coldStart: { demonstrations: 96, learningRate: 1e-4, epochs: 2, batchSequences: 8 },
    train: { steps: 10, learningRate: 2e-5, microBatchTokens: 4096, checkpointEvery: 5 },
    // No evaluation by default, since the directory may hold a single task.
    evaluation: { problems: 0, samples: 1 },
    environments: {},
  },
  tools: [bashTool, editorTool, mcpTool, submitTool],
  data: terminalData,
  async tasks(config) {
    return sources().taskSource(await splitOf(config))
  },
  async demonstrations(config) {
    const { train } = await splitOf(config)
    return demonstrations().terminalDemonstrations(
      train,
      config.coldStart?.demonstrations ?? train.length,
      config.environments,
    )
  },
})
