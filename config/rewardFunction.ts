/** Types of the reward functions that a recipe defines: their input and their result. */
import type { Task } from '../messages/facts'
import type { RecipeConfig } from './schema'

/** Input of a reward function. */
export interface RewardAsk {
  /** Everything that the model wrote: the texts of its turns, joined by line breaks, special tokens included. */
  readonly response: string
  /** Answer extracted from the response, as `reward.place` says; null if there is none. */
  readonly answer: string | null
  readonly task: Task
}

export interface RewardContext {
  /**
   * Aborted once the function has used `timeoutMs` (time inside `python` and `aside` does not count), and when the run
   * no longer awaits the reward. A result that comes after that is ignored.
   */
  readonly signal: AbortSignal
  readonly timeoutMs: number
  readonly config: RecipeConfig
  /**
   * Stops the clock of `timeoutMs` until `wait` settles, and returns its result: for waits, as in a queue, that are not
   * part of judging.
   */
  aside<T>(wait: Promise<T>): Promise<T>
  /**
   * Runs code in a sandbox with the project's Python environment, for at most `timeoutMs`. Resolves whatever the code
   * does; rejects if the sandbox fails or `signal` aborts.
   */
  python(
    code: string,
    stdin?: string,
  ): Promise<{ readonly status: string; readonly stdout: string; readonly stderr: string }>
}

export type RewardScore =
  | number
  | {
      readonly score: number
      /** Text that was judged as the answer. Default: the input's `answer`. */
      readonly answer?: string
      /** Name of the rule that decided the reward. Default: the reward's name. */
      readonly how?: string
      readonly why?: string
    }

/**
 * A user's reward. If it throws, `reward.failed` is recorded, and the rollout is left out instead of counted as wrong.
 * It runs in the verifier's own process, so code that never yields blocks everything there; `python` rewards run in
 * processes of their own.
 */
export type RewardFunction = (ask: RewardAsk, context: RewardContext) => RewardScore | Promise<RewardScore>
