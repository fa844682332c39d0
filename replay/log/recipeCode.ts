/**
 * What of a recipe is code and stands in no log: its tools and its rewards.
 *
 * in   the configuration that a run was started under; a recipe by name or as a file, where another's are wanted
 * out  the code of that recipe, else of the run's own where it is found by its name; the configuration to use it under
 */

import type { Recipe, RecipeConfig } from '../../config'
import { loadRecipe } from '../../recipes/load/loadRecipe'
import { pythonTool } from '../../sandbox/tools/pythonTool'

export interface RecipeCode {
  readonly recipe: Pick<Recipe, 'tools' | 'toolFunctions' | 'rewards'>
  /** Of the run; `tools` and `reward` are the other recipe's. */
  readonly config: RecipeConfig
}

/** @throws TroupeError config.no_recipe, config.invalid, of a recipe that is given */
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
    return { tools: [pythonTool] } // a file of the user's: what is built in is there all the same
  }
}
