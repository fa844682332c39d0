/** Recipes by name, and the functions and types for writing one: the public surface `troupe/recipes`. */
import type { Recipe } from '../config'
import { agent } from './agent'
import { environment } from './environment'
import { gsm8k } from './gsm8k'
import { oneGpu } from './oneGpu'
import { quickstart } from './quickstart'
import { rstar2 } from './rstar2'
import { smollm2 } from './smollm2'
import { terminal } from './terminal'
import { terminalTiny } from './terminal/tiny'

export { z } from 'zod'
export { grpoOptionsOf, sftOptionsOf, trainerOptionsOf } from '../backends/trainer/recipeOptions'
export {
  defineRecipe,
  type ExtendingRecipe,
  extendRecipe,
  type Recipe,
  type RecipeConfig,
  type RecipeInput,
  type RewardAsk,
  type RewardContext,
  type RewardFunction,
  type RewardScore,
  recipeSchema,
  type TaskSource,
  type TextTool,
  textTool,
  toolsOf,
} from '../config'
export { problemsData, problemsRecipe } from './problems'

export const recipes: ReadonlyMap<string, Recipe> = new Map([
  ['quickstart', quickstart],
  ['gsm8k', gsm8k],
  ...oneGpu,
  ...rstar2,
  ['smollm2', smollm2],
  ['environment', environment],
  ['terminal', terminal],
  ['terminal-tiny', terminalTiny],
  ['agent', agent],
])
