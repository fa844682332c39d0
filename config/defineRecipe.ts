/**
 * A recipe: what a run trains, on which tasks, with which numbers. It is plain data, checked by zod, and functions: its
 * tasks, demonstrations, tools and rewards. `run.started` holds the resolved data; the functions are found again by the
 * recipe's name.
 */
import type { z } from 'zod'
import type { ChatMessage, Task } from '../messages/facts'
import type { RewardFunction } from './rewardFunction'
import type { RecipeConfig, RecipeInput } from './schema'
import type { ToolFunction } from './toolFunction'
import type { ToolSchema } from './toolSchema'

/** Tasks by index, so that a cursor stored in a fact determines which tasks come next. */
export interface TaskSource {
  /**
   * Returns the training task at `index`, a number from 0 that keeps growing. Beyond the last task the tasks come
   * again; the source decides in which order.
   */
  train(index: number): Task
  /** Returns a task that is never trained on. @param index from 0 to evaluation.problems − 1 */
  evaluation(index: number): Task
  /** Number of rows of the data set that were left out, by reason. */
  readonly dropped: Readonly<Record<string, number>>
  /** Notes on tasks, such as a limit that is not enforced; the learner's process logs each as a warning. */
  readonly notes?: readonly string[]
  /** Number of tasks before `train` begins again; absent: tasks never end. */
  readonly size?: number
}

export interface Recipe {
  readonly config: RecipeInput
  readonly tools: readonly ToolSchema[]
  /** The recipe's own tools, by the names of their schemas in `tools`. */
  readonly toolFunctions?: Readonly<Record<string, ToolFunction>>
  /** Schema of `config.data`; absent: any data is accepted. */
  readonly data?: z.ZodType<Readonly<Record<string, unknown>>>
  tasks(config: RecipeConfig): Promise<TaskSource>
  /** True if `tasks` starts another program and takes many seconds; `troupe check` then does not call it. */
  readonly hasSlowTasks?: boolean
  /** The recipe's own rewards, by the name that `reward.name` or a task gives. */
  readonly rewards?: Readonly<Record<string, RewardFunction>>
  /**
   * Example conversations for the cold start (supervised fine-tuning before RL), and for the tokenizer of a model that
   * begins from random weights.
   */
  demonstrations?(config: RecipeConfig): Promise<readonly (readonly ChatMessage[])[]>
}

/** Returns the given recipe unchanged, so that TypeScript checks it. The recipe's data is checked when it is loaded. */
export const defineRecipe = (recipe: Recipe): Recipe => recipe

/**
 * A recipe that names only its differences from another: a recipe's name, or a file relative to this one. `config` is
 * merged into the base's, object by object, as in YAML, and its paths are relative to this file; every other field of
 * the recipe replaces the base's.
 */
export interface ExtendingRecipe extends Partial<Omit<Recipe, 'config'>> {
  readonly extends: string
  readonly config: PartialInput<RecipeInput>
}

/** The type with every field of every section optional. */
type PartialInput<T> = T extends readonly unknown[]
  ? T
  : T extends object
    ? { readonly [K in keyof T]?: PartialInput<T[K]> }
    : T

/** Returns the given recipe unchanged, so that TypeScript checks it. The merged recipe is checked when it is loaded. */
export const extendRecipe = (recipe: ExtendingRecipe): ExtendingRecipe => recipe
