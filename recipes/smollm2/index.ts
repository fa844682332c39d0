/**
 * Recipe smollm2: SmolLM2-135M-Instruct learns to solve reasoning-gym problems with Python.
 *
 * A cold start teaches the format of calls and answers on exercises; then GRPO-RoC trains on families of problems that
 * were not demonstrated.
 */
import { join } from 'node:path'
import { defineRecipe } from '../../config'
import { parseConfig } from '../../runtime/settings/resolveConfig'
import { pythonTool } from '../../sandbox/tools/pythonTool'
import { environmentData, environmentReward, environmentSource } from '../environment'
import { demonstration } from './demonstrations'
import { families } from './families'

/**
 * System message that replaces the tool's schema in the prompt: the schema would take 250 tokens. The cold start
 * teaches the format of calls.
 */
const system = `Calculate with ${pythonTool.name}. Then answer as <answer>\\boxed{N}</answer>.`

export const smollm2 = defineRecipe({
  config: {
    name: 'smollm2',
    seed: 1,
    model: {
      from: 'directory',
      path: '.troupe/models/smollm2-135m-instruct',
      template: join(__dirname, '../templates/hermes.jinja'),
    },
    data: { families, system, passAt: 0.99 },
    reward: environmentReward,
    engine: { kvTokens: 32_768, maxSequences: 64 },
    limits: { contextTokens: 512, responseTokens: 320, turns: 4, callsPerTurn: 1, toolResponseChars: 200 },
    tools: { inPrompt: false },
    rollout: { groupSize: 16, groupsPerStep: 12 },
    selection: { keep: 8, refillShare: 1 },
    coldStart: { demonstrations: 320, learningRate: 1e-4, epochs: 1, batchSequences: 8 },
    train: { steps: 20, learningRate: 2e-5, microBatchTokens: 4096, checkpointEvery: 5 },
    evaluation: { problems: 504, samples: 1 },
  },
  tools: [pythonTool],
  data: environmentData,
  hasSlowTasks: true,
  tasks: config => environmentSource(parseConfig(environmentData, config.data, 'data of recipe smollm2'), config),
  async demonstrations(config) {
    const count = config.coldStart?.demonstrations ?? 0
    return Array.from({ length: count }, (_, index) => [
      { role: 'system' as const, content: system },
      ...demonstration(index, config.seed).messages,
    ])
  },
})
