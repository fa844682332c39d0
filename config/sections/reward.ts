/**
 * What an answer is worth: a reward by name, and what the user's own functions are given.
 *
 * A reward is a number, 0 for wrong and 1 for right, or between them. `selection.positiveAbove` says from where on a rollout
 * is a positive for RoC; advantages are of the rewards themselves. Who cannot tell throws: that is counted, and no zero.
 */
import { z } from 'zod'
import { positive } from './numbers'

export const rewardSection = z.strictObject({
  /** math, choice, exact, format, python, weighted, or one that the recipe brings. A task may name another. */
  name: z.string().default('math'),
  /** Where the answer stands: inside the last `<answer>` (paper), in the last box anywhere (release), or all that was written. */
  place: z.enum(['answer-tag', 'anywhere', 'response']).default('answer-tag'),
  /** Of one judgement. */
  timeoutMs: positive.default(10_000),
  /** python: a file, or a module of the environment, and the function in it: (answer, task) → number or {score, why}. */
  file: z.string().min(1).optional(),
  module: z.string().min(1).optional(),
  function: z.string().min(1).default('reward'),
  /** python: the interpreter. Default: that of the set-up. */
  interpreter: z.string().min(1).optional(),
  /** python: how many processes judge at once. */
  processes: positive.max(64).default(1),
  /** weighted: rewards by name, and what each counts. */
  weights: z.record(z.string(), z.number()).optional(),
})

/** Rewards that every recipe has. */
export const builtInRewards = ['math', 'choice', 'exact', 'format', 'python', 'weighted'] as const

export type RewardConfig = z.output<typeof rewardSection>

/** What of the section contradicts itself: the path within it, and why. */
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
