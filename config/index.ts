/**
 * Exports what other modules use of the recipe's configuration: the schema and its sections, recipes and their tools,
 * rewards and task sources, flags of the paper's release, checks before a run starts.
 */

export { defineRecipe, type ExtendingRecipe, extendRecipe, type Recipe, type TaskSource } from './defineRecipe'
export { contextFaults, positionsOf } from './positions'
export { mapFlag, mapFlags } from './releaseFlags'
export type { RewardAsk, RewardContext, RewardFunction, RewardScore } from './rewardFunction'
export { longestContext, type RecipeConfig, type RecipeInput, recipeSchema, recipeSchemaWith } from './schema'
export {
  type Alarm,
  activeAlarms,
  alarmSection,
  completeAlarm,
  knownAlarms,
  stalled,
  stalledMinutes,
  stepAlarms,
  withoutUsual,
} from './sections/alarms'
export { correctionOf } from './sections/correction'
export { type EnvironmentSettings, environmentSettings } from './sections/environments'
export type { HardwareConfig } from './sections/hardware'
export { builtInRewards, type RewardConfig } from './sections/reward'
export type { McpServerConfig } from './sections/tools'
export { lossDefaults } from './sections/train'
export { selectionOf } from './selectionOptions'
export { refuseAtStart, refuseWithoutRendezvous, startFaults } from './startFaults'
export { type TextTool, textTool, toolsOf } from './textTool'
export type { ToolFunction } from './toolFunction'
