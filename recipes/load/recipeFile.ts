/**
 * Reads a recipe from a user's file: a module that exports one, YAML, or Python with the same fields.
 *
 * in   a file        out  a recipe, and the layers of its config, lowest first
 * Invariant: a YAML file can set every field of a recipe's `config`. `extends` names a recipe or a file relative to
 * this one, in YAML, Python and modules alike; YAML and Python without `extends` take the rows of `data.file` as tasks,
 * so that a user with a file of {problem, answer} writes no code.
 */

import { existsSync, readFileSync } from 'node:fs'
import { basename, dirname, extname, isAbsolute, join, relative, resolve } from 'node:path'
import { parseDocument } from 'yaml'
import type { ExtendingRecipe, Recipe, RecipeInput } from '../../config'
import { asError, TroupeError } from '../../runtime/errors'
import { didYouMean } from '../../runtime/settings/nearestName'
import type { Layer, PlainObject } from '../../runtime/settings/resolveConfig'
import { recipes } from '..'
import { problemsRecipe } from '../problems'
import { fittingModel, fittingProblems } from './fittingDefaults'
import { pythonRecipe } from './pythonRecipe'

export interface LayeredRecipe {
  readonly recipe: Recipe
  /** Layers of the config; a later layer overrides the earlier ones, and the last is the recipe's own. */
  readonly layers: readonly Layer[]
}

type Known = (name: string) => LayeredRecipe | undefined

const maxDepth = 16

/**
 * Reads the file. @throws TroupeError config.unreadable if it is not a map of sections, or the module cannot be loaded;
 * config.no_base if `extends` is not a text, names neither a recipe nor a file, forms a cycle, or leads over more than
 * 16 files; config.no_export if the module exports no recipe; process.no_python for a recipe in Python
 */
export function recipeOfFile(file: string, known: Known, above: readonly string[] = []): LayeredRecipe {
  if (above.includes(file))
    throw noBase(`${file} extends itself: ${[...above, file].map(f => basename(f)).join(' → ')}`)
  if (above.length > maxDepth) throw noBase(`${file}: the chain of 'extends' is longer than ${maxDepth} files`)
  const isPython = extname(file) === '.py'
  if (!isPython && !['.yaml', '.yml', '.json'].includes(extname(file))) return ofModule(file, known, above)
  const { extends: base, ...own } = isPython ? pythonRecipe(file) : yamlOf(file)
  const data = withPaths({ name: basename(file, extname(file)), ...own }, dirname(file))
  if (base === undefined)
    return { recipe: problemsRecipe(data as RecipeInput), layers: [fittingModel(data), { origin: 'recipe', data }] }
  return extended(file, base, data, known, above)
}

/** Returns the recipe that `base` names, with `data` above its config. */
function extended(
  file: string,
  base: unknown,
  data: PlainObject,
  known: Known,
  above: readonly string[],
): LayeredRecipe {
  if (typeof base !== 'string') throw noBase(`${file}: 'extends' must be the name of a recipe or a file, as text`)
  const parent = known(base) ?? parentFile(file, base, known, above)
  const below = parent.layers.map(layer =>
    layer.origin === 'recipe' ? { ...layer, origin: `extends ${base}` } : layer,
  )
  const fitting = fittingProblems(data, below)
  return {
    recipe: parent.recipe,
    layers: [...below, ...(fitting === undefined ? [] : [fitting]), { origin: 'recipe', data }],
  }
}

function parentFile(file: string, base: string, known: Known, above: readonly string[]): LayeredRecipe {
  const beside = resolve(dirname(file), base)
  if (existsSync(beside)) return recipeOfFile(beside, known, [...above, file])
  const guess = didYouMean(base, recipes.keys())
  throw noBase(`${file}: 'extends' names '${base}', which is neither a recipe nor a file in ${dirname(file)}${guess}`)
}

function yamlOf(file: string): PlainObject {
  const unreadable = (message: string, cause?: unknown) =>
    new TroupeError('config.unreadable', {
      ...{ boundary: 'config', retriable: false, message, cause },
      hint: 'write the YAML recipe as a map of sections: model, data, limits, rollout, …; docs/recipes.md shows one',
    })
  let text: string
  try {
    text = readFileSync(file, 'utf8')
  } catch (thrown) {
    throw unreadable(`${file} cannot be read: ${asError(thrown).message}`, thrown)
  }
  const document = parseDocument(text)
  const [error] = document.errors
  if (error !== undefined) throw unreadable(`${file}: ${error.message.trim().split('\n')[0]}`, error)
  let value: unknown
  try {
    value = document.toJS() ?? {}
  } catch (thrown) {
    throw unreadable(`${file}: ${asError(thrown).message}`, thrown)
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as PlainObject
  throw unreadable(
    `${file}: expected a map of sections, found ${Array.isArray(value) ? 'a list' : `'${String(value).slice(0, 40)}'`}`,
  )
}

function ofModule(file: string, known: Known, above: readonly string[]): LayeredRecipe {
  const common = {
    boundary: 'config',
    retriable: false,
    hint: "export the recipe from the module: export const recipe = defineRecipe({…}), or extendRecipe({ extends: 'quickstart', config: {…} })",
  } as const
  let loaded: unknown
  try {
    loaded = require(file)
  } catch (thrown) {
    throw new TroupeError('config.unreadable', {
      ...common,
      message: `${file} cannot be loaded: ${asError(thrown).message}`,
      hint: `mend this error of the module; then ${common.hint}`,
      cause: thrown,
    })
  }
  const { recipe } = (loaded ?? {}) as { readonly recipe?: unknown }
  if (isExtending(recipe)) {
    const { extends: base, config, ...own } = recipe
    const data = withPaths({ name: basename(file, extname(file)), ...config }, dirname(file))
    const { recipe: parent, layers } = extended(file, base, data, known, above)
    return { recipe: { ...parent, ...own }, layers }
  }
  if (isRecipe(recipe)) return { recipe, layers: [{ origin: 'recipe', data: { ...recipe.config } }] }
  const what =
    recipe === undefined
      ? "exports no 'recipe'"
      : "exports a 'recipe' that lacks the object `config` or the function `tasks`"
  throw new TroupeError('config.no_export', { ...common, message: `${file} ${what}` })
}

function isExtending(value: unknown): value is ExtendingRecipe {
  const { config, extends: base } = (value ?? {}) as Readonly<Record<string, unknown>>
  return base !== undefined && typeof config === 'object' && config !== null
}

function isRecipe(value: unknown): value is Recipe {
  const { config, tasks } = (value ?? {}) as Readonly<Record<string, unknown>>
  return typeof config === 'object' && config !== null && typeof tasks === 'function'
}

/**
 * Resolves fields that name files, in the sections model, data, reward, tools and agent: relative to the recipe's file
 * if such a file exists there, else to the working directory.
 */
function withPaths(data: PlainObject, folder: string): PlainObject {
  const placed = (field: string, value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(item => placed(field, item))
    if (typeof value === 'object' && value !== null) {
      return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, placed(name, inner)]))
    }
    if (
      typeof value !== 'string' ||
      isAbsolute(value) ||
      !/^(path|template|file|tasks|functions|command|check|.*File|.*Files)$/.test(field)
    )
      return value
    const beside = join(folder, value)
    return existsSync(beside) && relative(process.cwd(), beside) !== value ? beside : value
  }
  // `tasks` at the top is short for data.tasks.
  const sections = ['model', 'data', 'tasks', 'reward', 'tools', 'agent']
  return Object.fromEntries(
    Object.entries(data).map(([name, section]) => [name, sections.includes(name) ? placed(name, section) : section]),
  )
}

const noBase = (message: string) =>
  new TroupeError('config.no_base', {
    boundary: 'config',
    retriable: false,
    message,
    hint: `known recipes: ${[...recipes.keys()].join(', ')}; or name a .yaml, .py, .ts or .js file, relative to this one`,
  })
