/**
 * Opens the rewards of a recorded run again, in a sandbox of their own.
 *
 * in   the run's configuration; optionally another recipe, part of the response that holds the answer (`place`), rule
 *      for integers (`literal`) or deadline
 * out  one grader, which grades each response by the reward that its task names
 */
import type { Grader } from '../../actors/verification/verifierPort'
import type { RecipeConfig, RewardConfig } from '../../config'
import { recipeCode } from '../log/recipeCode'
import { replayError } from '../replayError'

/**
 * Deadline of one grade by a caller's grader, in ms. Recipe rewards, which have a deadline of their own, get this time
 * in addition, for the start of the sandbox and the wait for earlier grades.
 */
export const graderDeadlineMs = 60_000
/** Number of responses that are graded concurrently. */
export const gradesAtOnce = 16

export interface RecordedGrader {
  readonly grade: Grader
  /** Ends the sandbox and the reward processes. */
  close(): Promise<void>
}

export interface RecordedGraderOptions {
  /** Name or file of the recipe whose rewards grade the responses. Default: the run's own. */
  readonly recipe?: string
  /** Part of the response that must hold the answer. Default: the recipe's. */
  readonly place?: RewardConfig['place']
  /** true: if the truth is an integer, only a number in digits is right. Default: the recipe's. */
  readonly literal?: boolean
  /** Deadline of one grade, ms. Default: the recipe's reward.timeoutMs. */
  readonly timeoutMs?: number
}

/**
 * Opens the grader. @throws TroupeError config.no_recipe, config.invalid; the errors of `openGraders`. The grader
 * throws replay.cannot_rescore for an unknown reward.
 */
export async function openRecordedGrader(
  recorded: RecipeConfig,
  options: RecordedGraderOptions = {},
): Promise<RecordedGrader> {
  // Imported here: loading takes a second, which other replay commands should not spend.
  const { graderSandbox } =
    require('../../actors/verification/graderSandbox') as typeof import('../../actors/verification/graderSandbox')
  const { openGraders } =
    require('../../actors/verification/graders') as typeof import('../../actors/verification/graders')
  const { config, recipe } = recipeCode(recorded, options.recipe)
  const place = options.place ?? config.reward.place
  const { literal = config.reward.literal, timeoutMs = config.reward.timeoutMs } = options
  const reward = { ...config.reward, place, literal, timeoutMs }
  const sandbox = graderSandbox()
  const { rewards } = recipe
  const graders = await openGraders({ config: { ...config, reward }, sandbox, ...(rewards ? { rewards } : {}) }).catch(
    async (thrown: unknown) => {
      await sandbox.close()
      throw thrown
    },
  )
  return {
    grade(ask, signal) {
      const grader = graders.byName.get(ask.task.reward)
      if (grader !== undefined) return grader(ask, signal)
      const name = options.recipe ?? recorded.name
      const known = [...graders.byName.keys()].join(', ')
      throw replayError(
        'cannot_rescore',
        `task ${ask.task.id} asks for the reward '${ask.task.reward}'; the recipe '${name}' has: ${known}`,
        '`troupe replay rescore` takes the recipe that defines it (--recipe FILE) or a grader (--grader FILE)',
      )
    },
    async close() {
      await sandbox.close()
      await graders.close()
    },
  }
}
