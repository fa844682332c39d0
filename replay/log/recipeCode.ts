/**
 * Loads a recipe's code (its tools and its rewards), which no log contains.
 *
 * in   the configuration that a run was started under; optionally another recipe, by name or as a file
 * out  the code and the configuration to use it under. Code: that of the other recipe if one is named; else that of the
 * run's recipe if it can be loaded by its name, as a built-in one can; else only the built-in Python tool
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
 * Loads the code of the recipe `given` (a name or a file), else that of the run's own recipe.
 * @throws TroupeError config.no_recipe, config.invalid when `given` cannot be loaded
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
