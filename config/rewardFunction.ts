/** Reward functions that a recipe brings: their input and their result. */
import type { Task } from '../messages/facts'
import type { RecipeConfig } from './schema'

/** The input of a reward. */
export interface RewardAsk {
  /** Everything that the model wrote, turns joined, special tokens kept. */
  readonly response: string
  /** The answer in it, as `reward.place` says; null if there is none. */
  readonly answer: string | null
  readonly task: Task
}

export interface RewardContext {
  /**
   * Aborted after `reward.timeoutMs`, in which time inside `python` and `aside` does not count; then nobody waits any more.
   */
  readonly signal: AbortSignal
  readonly timeoutMs: number
  readonly config: RecipeConfig
  /**
   * Stops the clock of `timeoutMs` until the promise settles: for a wait, as in a queue, that is not part of judging.
   */
  aside<T>(wait: Promise<T>): Promise<T>
  /** Runs code in a sandbox with the project's Python environment. Resolves whatever the code does. */
  python(
    code: string,
    stdin?: string,
  ): Promise<{ readonly status: string; readonly stdout: string; readonly stderr: string }>
}

export type RewardScore =
  | number
  | {
      readonly score: number
      /** The text that was taken as the answer. Default: the input's. */
      readonly answer?: string
      /** Name of the rule that decided. Default: the reward's name. */
      readonly how?: string
      readonly why?: string
    }

/**
 * A user's reward. It may throw: `reward.failed` records that, and the rollout is left out instead of counted as wrong. It
 * runs in this process, so code that never yields holds everything up; `python` rewards run in processes of their own.
 */
export type RewardFunction = (ask: RewardAsk, context: RewardContext) => RewardScore | Promise<RewardScore>
