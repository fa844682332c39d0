/**
 * Loads a recipe by its name in recipes/, or from a user's file (.ts, .js, .yaml).
 *
 * in   a name or a file, the `--set` overrides
 * out  the recipe, its resolved config, and the origin of each value
 */

import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { mapFlag, mapFlags, type RecipeConfig, recipeSchemaWith } from '../../config'
import { TroupeError } from '../../runtime/errors'
import { didYouMean } from '../../runtime/settings/nearestName'
import { type Resolved, resolveConfig } from '../../runtime/settings/resolveConfig'
import { recipes } from '..'
import { benchmarkRecipe, benchmarks } from '../benchmarks'
import { type LayeredRecipe, recipeOfFile } from './recipeFile'

export interface LoadedRecipe {
  readonly recipe: LayeredRecipe['recipe']
  readonly config: Resolved<RecipeConfig>
}

/** Maps the flags of the paper's released code to recipe fields, so that `--set` and YAML accept both names. */
export const recipeNames = {
  one: (name: string, value: unknown) => mapFlag(name, value, '--set'),
  all: mapFlags,
} as const

/**
 * Loads and resolves a recipe. @throws TroupeError config.no_recipe if neither a recipe nor a file has the name;
 * config.invalid if the schema refuses a field or a value; the errors of `recipeOfFile`
 */
export function loadRecipe(name: string, overrides: readonly string[] = []): LoadedRecipe {
  const { recipe, layers } = findRecipe(name)
  const own = layers.at(-1)!
  const what = own.origin === 'recipe' ? `recipe ${name}` : own.origin
  const config = resolveConfig(recipeSchemaWith(recipe.data), {
    ...{ what, below: layers.slice(0, -1), recipe: own.data, overrides, names: recipeNames },
  })
  return { recipe, config }
}

function findRecipe(name: string): LayeredRecipe {
  const known = knownRecipe(name)
  if (known !== undefined) return known
  const file = resolve(name)
  if (existsSync(file)) return recipeOfFile(file, knownRecipe)
  const names = [...recipes.keys()]
  throw new TroupeError('config.no_recipe', {
    boundary: 'config',
    retriable: false,
    message: `no recipe or file is named '${name}'${didYouMean(name, names)}`,
    hint: `known recipes: ${names.join(', ')}; or give a .ts, .js or .yaml file`,
  })
}

function knownRecipe(name: string): LayeredRecipe | undefined {
  const benchmark = name.startsWith('eval-') ? benchmarks.get(name.slice('eval-'.length)) : undefined
  const known = benchmark === undefined ? recipes.get(name) : benchmarkRecipe(benchmark)
  return known && { recipe: known, layers: [{ origin: 'recipe', data: { ...known.config } }] }
}
