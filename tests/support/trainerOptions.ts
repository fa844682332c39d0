/**
 * Options of a trainer on one CPU thread and of its steps; fields that a test leaves out have the recipe's defaults.
 */
import { grpoOptionsOf, trainerOptionsOf } from '../../backends/trainer/recipeOptions'
import { type RecipeInput, recipeSchema } from '../../config'

const recipe = (train: RecipeInput['train']) =>
  recipeSchema.parse({ name: 'test', model: { from: 'directory', path: '/model' }, train })

export const trainerOptions = trainerOptionsOf(recipe({ device: 'cpu', threads: 1 }))

export const grpoOptions = (train: RecipeInput['train']) => grpoOptionsOf(recipe(train))
