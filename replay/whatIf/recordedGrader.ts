/**
 * The graders of a recorded run: what its tasks are judged by, opened anew.
 *
 * in   the configuration that the run was started under; another recipe, place or deadline where these are asked for
 * out  one grader, that judges by the reward which the task names, in a sandbox of its own
 */
import type { Grader } from '../../actors/verification/verifierPort'
import type { RecipeConfig, RewardConfig } from '../../config'
import { TroupeError } from '../../runtime/errors'
import { recipeCode } from '../log/recipeCode'

/** For one answer, with the opening of a sandbox and those that are judged before it. */
export const graderDeadlineMs = 60_000
/** How many are handed to a grader together. */
export const gradesAtOnce = 16

/** `closers`: what is to be closed when no more is judged. @throws TroupeError cli.cannot_rescore, of a task's reward that is not known */
export async function recordedGrader(
  given: RecipeConfig,
  options: { readonly recipe?: string; readonly place?: RewardConfig['place']; readonly timeoutMs?: number },
  closers: (() => Promise<void>)[],
): Promise<Grader> {
  // Loaded here: a second of start-up that other commands need not wait for.
  const { graderSandbox } =
    require('../../actors/verification/graderSandbox') as typeof import('../../actors/verification/graderSandbox')
  const { openGraders } =
    require('../../actors/verification/graders') as typeof import('../../actors/verification/graders')
  const sandbox = graderSandbox()
  closers.push(() => sandbox.close())
  const { config, recipe } = recipeCode(given, options.recipe)
  const { reward } = config
  const asked = { ...reward, place: options.place ?? reward.place, timeoutMs: options.timeoutMs ?? reward.timeoutMs }
  const { rewards } = recipe
  const { byName, close } = await openGraders({
    config: { ...config, reward: asked },
    sandbox,
    ...(rewards ? { rewards } : {}),
  })
  closers.push(close)
  return (ask, signal) => {
    const grader = byName.get(ask.task.reward)
    if (grader === undefined) {
      throw new TroupeError('cli.cannot_rescore', {
        boundary: 'cli',
        retriable: false,
        message: `the reward '${ask.task.reward}' is not known here; give --recipe FILE or --grader FILE`,
        hint: 'troupe replay rescore G',
      })
    }
    return grader(ask, signal)
  }
}
