/** Recipes: their data, section by section, and what brings their tasks. */
export { defineRecipe, type Recipe, type TaskSource } from './defineRecipe'
export { type RecipeConfig, type RecipeInput, recipeSchema } from './schema'
