/**
 * Recipe environment: takes tasks and rewards from reasoning-gym's data sets or from `verifiers` environments.
 *
 * The packages (troupe setup environments) make the instances when the process starts or resumes the run, not during
 * it, and judge the answers. Troupe itself runs the turns and tools. By default SmolLM2-135M-Instruct learns the data
 * set `chain_sum`; a YAML file that extends this recipe sets another model (`model`) or data sets (`data.families`).
 * Invariant: the same seed and package version give the same instances, so that a resumed run continues with the same
 * tasks.
 */
import { join } from 'node:path'
import { z } from 'zod'
import { defineRecipe, type RecipeConfig, type TaskSource } from '../../config'
import type { ChatMessage } from '../../messages/facts'
import { deriveSeed } from '../../runtime/effects'
import { environmentsVenv } from '../../runtime/python'
import { parseConfig } from '../../runtime/settings/resolveConfig'
import { pythonTool } from '../../sandbox/tools/pythonTool'
import { type InstancesRequest, instancesOf, pythonDirectory } from './instances'
import { environmentTasks } from './tasks'

export const environmentData = z.strictObject({
  package: z.enum(['reasoning-gym', 'verifiers']).default('reasoning-gym'),
  /**
   * Names of reasoning-gym data sets, or ids of `verifiers` environments or tasksets. `options`: the configuration of
   * the data set or taskset, or load_environment's arguments.
   */
  families: z
    .array(z.strictObject({ name: z.string(), options: z.record(z.string(), z.unknown()).default({}) }))
    .min(1),
  /** Number of training instances of each family; a family that has fewer gives all of them. */
  instances: z.number().int().positive().max(100_000).default(400),
  /** System message. Default: the environment's own, if it has one. */
  system: z.string().optional(),
  /** Score from which on the reward is 1; below it the reward is 0. Default: the score itself is the reward. */
  passAt: z.number().positive().max(1).optional(),
})

type EnvironmentData = z.output<typeof environmentData>

/**
 * Exclusive upper bound on a split's seed. reasoning-gym makes instance i from seed + i, and each split has a seed of
 * its own in this range, so the instances of training and evaluation hardly ever overlap.
 */
const seedRange = 2 ** 31

/** Settings of the reward: the package's own reward function, run in the venv that has the package. */
export const environmentReward = {
  name: 'python',
  file: join(pythonDirectory, 'reward.py'),
  interpreter: join(environmentsVenv(), 'bin/python'),
  // 60 s, because a process imports the package and makes the environment for its first answer, which takes 10 s or
  // more on a busy machine.
  timeoutMs: 60_000,
} as const

export async function environmentSource(data: EnvironmentData, config: RecipeConfig): Promise<TaskSource> {
  const made = (split: InstancesRequest['split'], count: number) => {
    const seed = deriveSeed('environment', config.seed, split) % seedRange
    return instancesOf({ package: data.package, families: data.families, split, seed, count })
  }
  const evaluated = Math.ceil(config.evaluation.problems / data.families.length)
  const evaluation = evaluated === 0 ? [] : await made('eval', evaluated)
  const isEvaluatedAlone =
    config.train.steps === 0 &&
    config.coldStart === undefined &&
    config.model.from !== 'random' &&
    config.stages.every(({ problems }) => problems === undefined)
  const train = isEvaluatedAlone ? [] : await made('train', data.instances)
  return environmentTasks(train, evaluation, { source: data.package, system: data.system, passAt: data.passAt })
}

export const environment = defineRecipe({
  config: {
    name: 'environment',
    model: {
      from: 'directory',
      path: '.troupe/models/smollm2-135m-instruct',
      template: join(__dirname, '../templates/hermes.jinja'),
    },
    data: { families: [{ name: 'chain_sum' }] },
    engine: { kvTokens: 32_768 },
    limits: { contextTokens: 1024, responseTokens: 512, turns: 4 },
    rollout: { groupSize: 16, groupsPerStep: 8 },
    selection: { keep: 8 },
    reward: environmentReward,
  },
  tools: [pythonTool],
  data: environmentData,
  hasSlowTasks: true,
  tasks: config =>
    environmentSource(parseConfig(environmentData, config.data, `data of recipe ${config.name}`), config),
  /**
   * Returns problems with their answers, for a cold start on the format or for the tokenizer of a model with random
   * weights; an empty list if the recipe has neither.
   */
  async demonstrations(config) {
    const data = parseConfig(environmentData, config.data, `data of recipe ${config.name}`)
    if (config.coldStart === undefined && config.model.from !== 'random') return []
    return answered(data, config)
  },
})

async function answered(data: EnvironmentData, config: RecipeConfig): Promise<readonly (readonly ChatMessage[])[]> {
  const source = await environmentSource(data, config)
  const count = config.coldStart?.demonstrations ?? data.instances * data.families.length
  return Array.from({ length: count }, (_, index) => {
    const { messages, truth } = source.train(index)
    return [...messages, { role: 'assistant', content: `<answer>\\boxed{${truth}}</answer>` }]
  })
}
