/**
 * Ends a step of a task with several steps: the tool `submit` of such a task.
 *
 * in   the rollout's environment, the calls that have run in it        out  the outcome of `submit`
 * The step's verifier runs, then the environment is set up for the next step, whose instruction is the tool's answer.
 * In the last step nothing happens: its verifier runs when the rollout has ended.
 * Invariant: the rewards are in the outcome's `step`, never in the text that the model reads. A reward below the
 * step's minimum ends the task. So do a verifier that gives no reward, a next step that cannot be set up, and a step
 * that does not end within `timeoutMs`, with the reason in `step.fault`. Retriable errors are thrown instead.
 */
import { type ToolOutcome, toolOutcome } from '../../kernels'
import type { PastCall, StepEnd } from '../../messages/facts'
import { TroupeError } from '../../runtime/errors'
import { rejectOnAbort } from '../../runtime/rejectOnAbort'
import { excerpt } from '../../runtime/secrets/knownSecrets'
import type { Environment } from '../drivers/driver'
import type { Rewards } from '../tasks/reward'
import { environmentSpec } from '../tasks/runTask'
import { goOn, isTooLow } from '../tasks/steps'
import type { Task, TaskStep } from '../tasks/task'
import type { AllowedVariables } from '../tasks/variables'
import { type Verified, verifyStep } from '../tasks/verify'
import { imageOf, type PreparedTask } from './prepareTask'

/** Returns the steps that the calls have ended, in order. */
export const endedSteps = (calls: readonly PastCall[]): readonly StepEnd[] =>
  calls.flatMap(({ step }) => (step === undefined ? [] : [step]))

/** Returns the step that a rollout is in after these calls. */
export const stepAfter = ({ steps }: Task, calls: readonly PastCall[]): TaskStep =>
  steps[Math.min(endedSteps(calls).length, steps.length - 1)]!

/** Runs the step's verifier on the files of a rollout's environment. */
export const judgeStep = (
  { task, driver }: PreparedTask,
  step: TaskStep,
  environment: Environment,
  allowed: AllowedVariables,
  signal?: AbortSignal,
): Promise<Verified> => {
  const openSeparate = async () => {
    const image = await imageOf(driver, task, step.verifierImage, signal)
    return driver.start(environmentSpec(step.verifierEnvironment, image, allowed), signal)
  }
  return verifyStep(task, step, environment, openSeparate, allowed)
}

export async function endStep(
  prepared: PreparedTask,
  calls: readonly PastCall[],
  environment: Environment,
  allowed: AllowedVariables,
  timeoutMs: number,
  signal?: AbortSignal,
): Promise<ToolOutcome> {
  const { task } = prepared
  const step = stepAfter(task, calls)
  const at = task.steps.indexOf(step) + 1
  const next = task.steps[at]
  if (next === undefined) return toolOutcome({ status: 'ok', exitCode: 0 })
  const began = performance.now()
  const ended = (end: Omit<StepEnd, 'name'>, stdout: string) =>
    toolOutcome({
      ...{ status: 'ok', exitCode: 0, stdout, wallMs: performance.now() - began, step: { name: step.name, ...end } },
    })
  const late = AbortSignal.timeout(timeoutMs)
  const stop = signal === undefined ? late : AbortSignal.any([signal, late])
  let rewards: Rewards = {}
  const judgeAndSetUp = async () => {
    rewards = (await judgeStep(prepared, step, environment, allowed, stop)).rewards
    if (!stop.aborted && !isTooLow(task, step, rewards)) await goOn(task, next, environment)
  }
  try {
    await rejectOnAbort(judgeAndSetUp(), stop)
    if (isTooLow(task, step, rewards)) return ended({ rewards, over: true }, '')
    return ended(
      { rewards, over: false },
      `Step ${at} of ${task.steps.length} is over. Step ${at + 1}:\n${next.instruction.trim()}\n`,
    )
  } catch (thrown) {
    signal?.throwIfAborted()
    const fault = late.aborted
      ? { how: 'task.step_timeout', why: `the step did not end within ${timeoutMs} ms` }
      : thrown instanceof TroupeError && !thrown.retriable
        ? { how: thrown.code, why: excerpt(thrown.message, 500) }
        : undefined
    if (fault === undefined) throw thrown
    return ended({ rewards, over: true, fault }, '')
  }
}
