/** A trainer on one CPU thread, and the options of its steps, as a recipe that says nothing else has them. */
import { grpoOptionsOf, trainerOptionsOf } from '../../backends/trainer/recipeOptions'
import { type RecipeInput, recipeSchema } from '../../config'

const recipe = (train: RecipeInput['train']) =>
  recipeSchema.parse({ name: 'test', model: { from: 'directory', path: '/model' }, train })

export const trainerOptions = trainerOptionsOf(recipe({ device: 'cpu', threads: 1 }))

export const grpoOptions = (train: RecipeInput['train']) => grpoOptionsOf(recipe(train))
