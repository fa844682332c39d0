/** Recipes: their data, section by section, and what brings their tasks. */
export { type Alarm, completeAlarm, knownAlarms } from './alarms'
export { defineRecipe, type Recipe, type TaskSource } from './defineRecipe'
export { grpoOptionsOf, selectionOf, trainerOptionsOf } from './learning'
export { mapFlag, mapFlags } from './releaseFlags'
export {
  builtInRewards,
  type RewardAsk,
  type RewardConfig,
  type RewardContext,
  type RewardFunction,
  type RewardScore,
} from './reward'
export { type RecipeConfig, type RecipeInput, recipeSchema, recipeSchemaWith } from './schema'
export type { StageConfig } from './stages'
export { type LossName, lossDefaults, type TrainConfig } from './train'
