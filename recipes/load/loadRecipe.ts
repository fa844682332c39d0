/**
 * Loads a recipe by its name in recipes/, or from a user's file (.ts, .js, .yaml, .json or .py).
 *
 * in   a name or a file, the `--set` overrides
 * out  the recipe, its resolved config, and the origin of each value
 */

import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { mapFlag, mapFlags, type RecipeConfig, recipeSchemaWith } from '../../config'
import { TroupeError } from '../../runtime/errors'
import { allProblems } from '../../runtime/settings/allProblems'
import { didYouMean } from '../../runtime/settings/nearestName'
import { mergedInput, type Problem, type Resolved, resolveConfig } from '../../runtime/settings/resolveConfig'
import { recipes } from '..'
import { benchmarkRecipe, benchmarks } from '../benchmarks'
import { type LayeredRecipe, recipeOfFile } from './recipeFile'

export interface LoadedRecipe {
  readonly recipe: LayeredRecipe['recipe']
  readonly config: Resolved<RecipeConfig>
}

/** Users may write `tasks` for the field `data.tasks`, the directory of a recipe's Harbor tasks. */
const tasksField = 'tasks'

/** Maps the flags of the paper's released code to recipe fields, so that `--set` and YAML accept both names. */
export const recipeNames = {
  one: (name: string, value: unknown) =>
    name === tasksField ? { path: `data.${tasksField}`, value } : mapFlag(name, value, '--set'),
  all: (data: Parameters<typeof mapFlags>[0], what: string) => {
    const { [tasksField]: directory, ...rest } = data
    const mapped = mapFlags(rest, what)
    if (directory === undefined) return mapped
    return { ...mapped, named: [...mapped.named, { path: `data.${tasksField}`, value: directory, flag: tasksField }] }
  },
} as const

/**
 * Loads and resolves a recipe. @throws TroupeError config.no_recipe if neither a recipe nor a file has the name;
 * config.invalid if the schema refuses a field or a value; the errors of `recipeOfFile`
 */
export function loadRecipe(name: string, overrides: readonly string[] = []): LoadedRecipe {
  const { recipe, layers } = findRecipe(name)
  return { recipe, config: resolveConfig(recipeSchemaWith(recipe.data), layersOf(name, layers, overrides)) }
}

export interface ReadRecipe {
  readonly recipe: LayeredRecipe['recipe']
  readonly problems: readonly (Problem & { readonly origin: string })[]
  /**
   * Config in which faulty fields have their defaults; undefined if a required field other than `model` and `name` is
   * faulty.
   */
  readonly config: RecipeConfig | undefined
  /** True if `config` exists and its `model` is the recipe's; false if a stand-in replaces a missing or faulty one. */
  readonly hasModel: boolean
}

/** Stand-in for a model that the recipe leaves out or states wrongly. */
const noModel = { from: 'directory', path: '' }

/**
 * Loads a recipe for a check: lists what its schema refuses instead of throwing an error.
 * @throws TroupeError as `loadRecipe` if the recipe cannot be read at all
 */
export function readRecipe(name: string, overrides: readonly string[] = []): ReadRecipe {
  const { recipe, layers } = findRecipe(name)
  const { input, originOf } = mergedInput(layersOf(name, layers, overrides))
  const { problems, value } = allProblems(recipeSchemaWith(recipe.data), input, { model: noModel, name: 'recipe' })
  return {
    recipe,
    problems: problems.map(problem => ({ ...problem, origin: originOf(problem.path) })),
    config: value,
    hasModel: value !== undefined && (value.model.from !== 'directory' || value.model.path !== ''),
  }
}

function layersOf(name: string, layers: LayeredRecipe['layers'], overrides: readonly string[]) {
  const own = layers.at(-1)!
  const what = own.origin === 'recipe' ? `recipe ${name}` : own.origin
  return { what, below: layers.slice(0, -1), recipe: own.data, overrides, names: recipeNames }
}

/**
 * Returns the name under which a recipe is found from every working directory: a known name stays, a file becomes its
 * absolute path.
 */
export const sourceOf = (name: string): string => (knownRecipe(name) === undefined ? resolve(name) : name)

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
    hint: `known recipes: ${names.join(', ')}; or give a .yaml, .py, .ts or .js file`,
  })
}

function knownRecipe(name: string): LayeredRecipe | undefined {
  const benchmark = name.startsWith('eval-') ? benchmarks.get(name.slice('eval-'.length)) : undefined
  const known = benchmark === undefined ? recipes.get(name) : benchmarkRecipe(benchmark)
  return known && { recipe: known, layers: [{ origin: 'recipe', data: { ...known.config } }] }
}
