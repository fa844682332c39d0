/**
 * Recipe terminal-tiny: the quickstart's model learns shell tasks, from random weights, in minutes on two CPU cores.
 *
 * A cold start on demonstrations (many of them bad on purpose) comes first; then GRPO-RoC. Every rollout runs its
 * commands in an environment of its own, and the verifier of its task, a directory in Harbor's format, gives the
 * reward. The tasks that are evaluated on have words and file names that no task of training has.
 */
import { z } from 'zod'
import { defineRecipe, type RecipeConfig } from '../../../config'
import { bashTool, submitTool } from '../../../environments/tools/schemas'
import { parseConfig } from '../../../runtime/settings/resolveConfig'
import { quickstart } from '../../quickstart'
import { tinyModel } from '../../quickstart/model'
import { demonstration, tinyTools } from './demonstrations'
import { type Split, tinyTask } from './tasks'

const tinyData = z.strictObject({
  /** Number of tasks to train on; after the last task, training continues with the first. */
  trainTasks: z.number().int().positive().default(480),
})

const { rollout, selection, ...shared } = quickstart.config

/** Writes the first `count` tasks of a split below Troupe's home, and reads them. */
async function tasksOf(config: RecipeConfig, split: Split, count: number) {
  // The modules of environments are loaded at their first use: most runs have another recipe.
  const { taskSetDirectory } = require('../suite') as typeof import('../suite')
  const { terminalTasks } = require('../tasks') as typeof import('../tasks')
  if (count === 0) return []
  const tasks = Array.from({ length: count }, (_, index) => tinyTask(index, config.seed, split))
  return terminalTasks(taskSetDirectory(`tiny-${split}`, tasks), '', config.environments)
}

export const terminalTiny = defineRecipe({
  config: {
    ...shared,
    name: 'terminal-tiny',
    model: tinyModel([
      ...['<tool_call>', '</tool_call>', '<tool_response>', '</tool_response>', '{"name":"', bashTool.name],
      ...[submitTool.name, '","arguments":{"command":"', '"}}', '","arguments":{}}', '.txt'],
    ]),
    data: {},
    limits: {
      ...{ contextTokens: 320, responseTokens: 256, turns: 5, callsPerTurn: 1 },
      ...{ toolTimeoutMs: 10_000, toolResponseChars: 300 },
    },
    reward: { name: 'verifier' },
    rollout: { ...rollout, groupsPerStep: 16, deadlineMs: 300_000 },
    // The model is not asked for <answer> tags, so the penalty for a wrong answer format is off.
    selection: { ...selection, answerFormat: false },
    train: { ...quickstart.config.train, steps: 12 },
    evaluation: { problems: 192, samples: 1, temperature: 0.6 },
    environments: { driver: 'local', live: 128 },
  },
  tools: tinyTools,
  data: tinyData,
  async tasks(config) {
    const { trainTasks } = parseConfig(tinyData, config.data, 'data of recipe terminal-tiny')
    const { taskSource } = require('../tasks') as typeof import('../tasks')
    return taskSource({
      train: await tasksOf(config, 'train', trainTasks),
      evaluation: await tasksOf(config, 'eval', config.evaluation.problems),
    })
  },
  async demonstrations(config) {
    const count = config.coldStart?.demonstrations ?? 0
    return Array.from({ length: count }, (_, index) => demonstration(index, config.seed).messages)
  },
})
