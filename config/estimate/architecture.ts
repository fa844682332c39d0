/**
 * Returns the model's transformers config: the one in the recipe, else `config.json` in the model's directory.
 *
 * in   the recipe's model        out  the config's fields, or the reason why they cannot be read
 */
import { readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { asError, TroupeError } from '../../runtime/errors'
import type { RecipeConfig } from '../schema'

/**
 * Returns the fields of the model's transformers config. @throws TroupeError config.no_architecture if the recipe has
 * no architecture and the model's config.json cannot be read
 */
export function architectureOf({ model }: Pick<RecipeConfig, 'model'>): Readonly<Record<string, unknown>> {
  if (model.from === 'random') return model.config
  if (model.architecture !== undefined) return model.architecture
  return architectureIn(model.path)
}

/** Returns what architectureOf does, but undefined if the config cannot be read: then there is no estimate. */
export function architectureIfKnown(
  config: Pick<RecipeConfig, 'model'>,
): Readonly<Record<string, unknown>> | undefined {
  try {
    return architectureOf(config)
  } catch (thrown) {
    if (thrown instanceof TroupeError && thrown.code === 'config.no_architecture') return undefined
    throw thrown
  }
}

/** Reads the transformers config in a model's directory. @throws TroupeError config.no_architecture */
export function architectureIn(directory: string): Readonly<Record<string, unknown>> {
  const file = join(resolve(directory), 'config.json')
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as Readonly<Record<string, unknown>>
  } catch (thrown) {
    throw new TroupeError('config.no_architecture', {
      boundary: 'config',
      retriable: false,
      message: `the estimate needs the model's architecture, but ${file} cannot be read: ${asError(thrown).message}`,
      hint: "write the model's transformers config into the recipe's model.architecture; weights are not needed",
    })
  }
}
