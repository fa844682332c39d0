/**
 * Loads the code of a recipe, which no log contains: its tools and its rewards.
 *
 * in   the configuration that a run was started under; optionally another recipe, by name or as a file
 * out  the code of that recipe, else of the run's own recipe if a built-in one has its name; the configuration to use
 * it under
 */

import type { Recipe, RecipeConfig } from '../../config'
import { loadRecipe } from '../../recipes/load/loadRecipe'
import { pythonTool } from '../../sandbox/tools/pythonTool'

export interface RecipeCode {
  readonly recipe: Pick<Recipe, 'tools' | 'toolFunctions' | 'rewards'>
  /** The run's configuration; `tools` and `reward` come from the other recipe if one was named. */
  readonly config: RecipeConfig
}

/**
 * Loads the code of `given`, or of the run's own recipe.
 * @throws TroupeError config.no_recipe, config.invalid, for the recipe that `given` names
 */
export function recipeCode(config: RecipeConfig, given?: string): RecipeCode {
  if (given === undefined) return { recipe: ownCode(config.name), config }
  const { recipe, config: other } = loadRecipe(given)
  const { tools, reward } = other.value
  return { recipe, config: { ...config, tools, reward } }
}

function ownCode(name: string): RecipeCode['recipe'] {
  try {
    return loadRecipe(name).recipe
  } catch {
    return { tools: [pythonTool] } // the run's recipe was a user's file: the built-in tool is available all the same
  }
}
