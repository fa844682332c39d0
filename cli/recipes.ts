/**
 * Finding a recipe: by its name in recipes/, or as a file of the user's (.ts, .js, .yaml).
 */
import { existsSync, readFileSync } from 'node:fs'
import { extname, resolve } from 'node:path'
import { closest, distance } from 'fastest-levenshtein'
import { parse } from 'yaml'
import { recipes } from '../recipes'
import { benchmarkRecipe, benchmarks } from '../recipes/benchmarks'
import { type Resolved, resolveConfig } from '../runtime/config'
import { TroupeError } from '../runtime/errors'
import { type Recipe, type RecipeConfig, type RecipeInput, recipeSchema } from '../runtime/recipe'

export interface LoadedRecipe {
  readonly recipe: Recipe
  readonly config: Resolved<RecipeConfig>
}

/** @throws TroupeError config.no_recipe, config.invalid */
export function loadRecipe(name: string, overrides: readonly string[] = []): LoadedRecipe {
  const recipe = findRecipe(name)
  const plain = recipe.config as unknown as Readonly<Record<string, unknown>>
  return { recipe, config: resolveConfig(recipeSchema, { what: `recipe ${name}`, recipe: plain, overrides }) }
}

function findRecipe(name: string): Recipe {
  const benchmark = name.startsWith('eval-') ? benchmarks.get(name.slice('eval-'.length)) : undefined
  const known = benchmark === undefined ? recipes.get(name) : benchmarkRecipe(benchmark)
  if (known !== undefined) return known
  const file = resolve(name)
  if (existsSync(file)) return fromFile(file)
  const names = [...recipes.keys()]
  const nearest = closest(name, names)
  const guess = distance(name, nearest) <= 3 ? `; did you mean '${nearest}'?` : ''
  throw new TroupeError('config.no_recipe', {
    boundary: 'config',
    retriable: false,
    message: `no recipe '${name}'${guess}`,
    hint: `recipes: ${names.join(', ')}; or give a .ts, .js or .yaml file`,
  })
}

/** A YAML file is a known recipe (`extends`) with other numbers; a module exports one as `recipe`. */
function fromFile(file: string): Recipe {
  if (['.yaml', '.yml'].includes(extname(file))) {
    const { extends: base, ...config } = (parse(readFileSync(file, 'utf8')) ?? {}) as Record<string, unknown>
    const parent = typeof base === 'string' ? recipes.get(base) : undefined
    if (parent === undefined) {
      throw new TroupeError('config.no_base', {
        boundary: 'config',
        retriable: false,
        message: `${file}: 'extends' must name a recipe that brings tasks`,
        hint: `recipes: ${[...recipes.keys()].join(', ')}`,
      })
    }
    return { ...parent, config: merged(parent.config, config) as RecipeInput }
  }
  const { recipe } = require(file) as { recipe?: Recipe }
  if (recipe !== undefined) return recipe
  throw new TroupeError('config.no_export', {
    boundary: 'config',
    retriable: false,
    message: `${file} exports no 'recipe'`,
    hint: 'export const recipe = defineRecipe({…})',
  })
}

const isPlain = (value: unknown): value is Record<string, unknown> =>
  value !== null && typeof value === 'object' && !Array.isArray(value)

function merged(base: unknown, over: unknown): unknown {
  if (!isPlain(base) || !isPlain(over)) return over
  const both = { ...base }
  for (const [key, value] of Object.entries(over)) both[key] = key in both ? merged(both[key], value) : value
  return both
}
