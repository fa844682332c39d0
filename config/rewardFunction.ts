/** Rewards that a recipe brings: what they are given, and what they may say. */
import type { Task } from '../messages/facts'
import type { RecipeConfig } from './schema'

/** What a reward judges. */
export interface RewardAsk {
  /** All that the model wrote, its turns joined, special tokens kept. */
  readonly response: string
  /** The answer in it, by `reward.place`; null where there is none. */
  readonly answer: string | null
  readonly task: Task
}

export interface RewardContext {
  /** Aborted at `reward.timeoutMs`, what `python` and `aside` take not counted; nobody waits for it after that. */
  readonly signal: AbortSignal
  readonly timeoutMs: number
  readonly config: RecipeConfig
  /** The clock of `timeoutMs` stands until this settles: for a wait that is not the judgement's own, as in a queue. */
  aside<T>(wait: Promise<T>): Promise<T>
  /** Runs code in a sandbox with the project's Python environment. Whatever the code does, it resolves. */
  python(
    code: string,
    stdin?: string,
  ): Promise<{ readonly status: string; readonly stdout: string; readonly stderr: string }>
}

export type RewardScore =
  | number
  | {
      readonly score: number
      /** What was taken as the answer. Default: the ask's. */
      readonly answer?: string
      /** Which rule decided, in a word. Default: the reward's name. */
      readonly how?: string
      readonly why?: string
    }

/**
 * A user's reward. It may throw: that is told (`reward.failed`) and the rollout is left out, not counted as wrong.
 * It shares this process: what never yields holds everything up. `python` rewards have processes of their own.
 */
export type RewardFunction = (ask: RewardAsk, context: RewardContext) => RewardScore | Promise<RewardScore>
