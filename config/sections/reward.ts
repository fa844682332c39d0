/**
 * The reward of an answer: a built-in reward or a user's function.
 *
 * A reward is a number, 0 for wrong, 1 for right, or between them. A rollout whose reward is above
 * `selection.positiveAbove` is a positive for RoC; advantages use the rewards themselves. A reward that cannot judge an
 * answer throws: the failure is counted, and the rollout has no reward, not 0.
 */
import { z } from 'zod'
import { positive } from './numbers'

export const rewardSection = z.strictObject({
  /**
   * Name of the reward: math, choice, exact, format, python, weighted, verifier (the verifier of a Harbor task), or one
   * that the recipe defines. A task may name another.
   */
  name: z.string().default('math'),
  /**
   * Place in the response where the reward looks for the answer. answer-tag: the last `\boxed{}` inside the last
   * `<answer>`, as in the rStar2-Agent paper. anywhere: the last `\boxed{}` of the response, as in that paper's
   * released code. Rewards that compare text take the text of the last `<answer>` if that place has no `\boxed{}`.
   * hashes: the number after the last `####`. last-number: the last number. response: the whole response; the reward
   * `math` refuses it.
   */
  place: z.enum(['answer-tag', 'anywhere', 'hashes', 'last-number', 'response']).default('answer-tag'),
  /**
   * true: where the truth is an integer, the answer must be a number in digits; an expression of that value, such as
   * the problem itself, is wrong.
   */
  literal: z.boolean().default(false),
  /** Deadline for judging one answer, ms. */
  timeoutMs: positive.default(10_000),
  /** For the reward `python`: Python file with the function. A recipe names a file or a module. */
  file: z.string().min(1).optional(),
  /** For the reward `python`: module of the Python environment with the function. */
  module: z.string().min(1).optional(),
  /** For the reward `python`: name of the function, (answer, task) → number or {score, why}. */
  function: z.string().min(1).default('reward'),
  /** For the reward `python`: the Python interpreter. Default: the one that `troupe setup` installed. */
  interpreter: z.string().min(1).optional(),
  /** For the reward `python`: number of processes that judge concurrently. */
  processes: positive.max(64).default(1),
  /** For the reward `weighted`: the weight of each reward, by name. */
  weights: z.record(z.string(), z.number()).optional(),
})

/** Names of the rewards that are built in. */
export const builtInRewards = ['math', 'choice', 'exact', 'format', 'python', 'weighted', 'verifier'] as const

export type RewardConfig = z.output<typeof rewardSection>

/** Lists contradictions in the reward section: the path within it, and the reason. */
export function rewardFaults(reward: RewardConfig): readonly (readonly [string, string])[] {
  const faults: (readonly [string, string])[] = []
  const { name, file, module, weights } = reward
  if (file !== undefined && module !== undefined) faults.push(['module', 'name a file or a module, not both'])
  if (name === 'python' && file === undefined && module === undefined)
    faults.push(['file', "the reward 'python' needs a file or a module that contains the function"])
  if (name === 'weighted' && weights === undefined)
    faults.push(['weights', "the reward 'weighted' needs weights, such as {math: 0.9, format: 0.1}"])
  if (weights !== undefined && 'weighted' in weights)
    faults.push(['weights', "the reward 'weighted' cannot contain itself"])
  if (weights !== undefined && Object.keys(weights).length === 0)
    faults.push(['weights', 'is empty; expected the name of a reward'])
  if (weights !== undefined && 'python' in weights && file === undefined && module === undefined)
    faults.push(['file', "the reward 'python' needs a file or a module that contains the function"])
  if (reward.place === 'response' && (name === 'math' || (weights !== undefined && 'math' in weights)))
    faults.push([
      'place',
      "the reward 'math' looks for a boxed answer or a number; expected answer-tag, anywhere, hashes or last-number",
    ])
  return faults
}
