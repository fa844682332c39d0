/**
 * The reward of an answer: a built-in reward or a function of the user's.
 *
 * A reward is a number, 0 for wrong, 1 for right, or between them. A rollout above `selection.positiveAbove` is a positive for
 * RoC; advantages use the rewards themselves. A reward that cannot tell throws: that is counted, and it is not a zero.
 */
import { z } from 'zod'
import { positive } from './numbers'

export const rewardSection = z.strictObject({
  /** math, choice, exact, format, python, weighted, or one that the recipe brings. A task may name another. */
  name: z.string().default('math'),
  /**
   * Place of the answer: inside the last `<answer>` (paper), in the last box anywhere (release), or the whole response.
   */
  place: z.enum(['answer-tag', 'anywhere', 'response']).default('answer-tag'),
  /** Deadline of one judgement, ms. */
  timeoutMs: positive.default(10_000),
  /**
   * python: a file, or a module of the environment, and the function in it: (answer, task) → number or {score, why}.
   */
  file: z.string().min(1).optional(),
  module: z.string().min(1).optional(),
  function: z.string().min(1).default('reward'),
  /** python: the interpreter. Default: that of the set-up. */
  interpreter: z.string().min(1).optional(),
  /** python: processes that judge at once. */
  processes: positive.max(64).default(1),
  /** weighted: rewards by name, with the weight of each. */
  weights: z.record(z.string(), z.number()).optional(),
})

/** Rewards that every recipe has. */
export const builtInRewards = ['math', 'choice', 'exact', 'format', 'python', 'weighted'] as const

export type RewardConfig = z.output<typeof rewardSection>

/** Lists contradictions in the section: the path within it, and the reason. */
export function rewardFaults(reward: RewardConfig): readonly (readonly [string, string])[] {
  const faults: (readonly [string, string])[] = []
  const { name, file, module, weights } = reward
  if (file !== undefined && module !== undefined) faults.push(['module', 'name a file or a module, not both'])
  if (name === 'python' && file === undefined && module === undefined)
    faults.push(['file', "the reward 'python' needs a file (or a module) that holds the function"])
  if (name === 'weighted' && weights === undefined)
    faults.push(['weights', "the reward 'weighted' needs weights, such as {math: 0.9, format: 0.1}"])
  if (weights !== undefined && 'weighted' in weights) faults.push(['weights', "'weighted' cannot be a part of itself"])
  if (weights !== undefined && Object.keys(weights).length === 0) faults.push(['weights', 'names no reward'])
  if (weights !== undefined && 'python' in weights && file === undefined && module === undefined)
    faults.push(['file', "the reward 'python' needs a file (or a module) that holds the function"])
  if (reward.place === 'response' && (name === 'math' || (weights !== undefined && 'math' in weights)))
    faults.push(['place', "the reward 'math' looks for a box: inside the answer-tag, or anywhere"])
  return faults
}
