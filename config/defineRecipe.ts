/**
 * A recipe: what to train, on what, with which numbers. Plain data, checked by zod, and a few functions that yield
 * tasks and demonstrations. The resolved data goes into `run.started`; the functions are found again by the recipe's name.
 */
import type { z } from 'zod'
import type { ChatMessage, Task } from '../messages/facts'
import type { RewardFunction } from './rewardFunction'
import type { RecipeConfig, RecipeInput } from './schema'
import type { ToolFunction } from './toolFunction'
import type { ToolSchema } from './toolSchema'

/** Tasks by index, so that a cursor in a fact says which come next. */
export interface TaskSource {
  /** Wraps around when the index passes the end: the source says in which order then. */
  train(index: number): Task
  /** Never trained on; index < evaluation.problems. */
  evaluation(index: number): Task
  /** Rows that were left out, by reason. */
  readonly dropped: Readonly<Record<string, number>>
  /** Tasks until `train` begins again; without, they do not end. */
  readonly size?: number
}

export interface Recipe {
  readonly config: RecipeInput
  readonly tools: readonly ToolSchema[]
  /** Tools of the recipe's own, by the names of their schemas in `tools`. */
  readonly toolFunctions?: Readonly<Record<string, ToolFunction>>
  /** What `config.data` may hold; without, anything. */
  readonly data?: z.ZodType<Readonly<Record<string, unknown>>>
  tasks(config: RecipeConfig): Promise<TaskSource>
  /** Rewards of the recipe's own, by the name that `reward.name` or a task says. */
  readonly rewards?: Readonly<Record<string, RewardFunction>>
  /** Conversations for the cold start, and for the tokenizer of a model that begins from random weights. */
  demonstrations?(config: RecipeConfig): Promise<readonly (readonly ChatMessage[])[]>
}

/** A recipe, as it is written down: checks nothing yet, but gives the fields their types. */
export const defineRecipe = (recipe: Recipe): Recipe => recipe
