/**
 * Recipe agent: the quickstart's model and problems, driven by an agent written against the package openai (agent.py).
 *
 * The agent's package is in the venv of `troupe setup environments`. The agent's tool is a calculator inside its
 * program, so no code that a model wrote is executed.
 */
import { join } from 'node:path'
import { defineRecipe, type RecipeInput } from '../../config'
import { environmentsVenv } from '../../runtime/python'
import { quickstart } from '../quickstart'

const { config } = quickstart

export const agent = defineRecipe({
  ...quickstart,
  config: {
    ...config,
    name: 'agent',
    agent: {
      file: join(__dirname, 'agent.py'),
      interpreter: join(environmentsVenv(), 'bin/python'),
      rights: 'user',
      atOnce: 16,
      deadlineMs: 60_000,
    },
  } satisfies RecipeInput,
})
