/**
 * Maps a recipe to the options of a group's selection.
 *
 * in   a resolved recipe        out  how a group's rollouts are selected, and how their advantages are computed
 * Invariant: a live run and a replay both take their options from here, so both select the same members.
 */
import type { SelectionOptions } from '../kernels'
import type { RecipeConfig } from './schema'

/** Selection options that all groups share; each group adds a seed and, by its stage, limits of its own. */
export function selectionOf({ selection, train, limits }: RecipeConfig): Omit<SelectionOptions, 'seed'> {
  const { advantage, overlong } = train
  const shaped = overlong === undefined ? {} : { overlong: { ...overlong, maxTokens: limits.responseTokens } }
  return { ...selection, advantage, ...shaped }
}
