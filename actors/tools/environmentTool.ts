/**
 * Tools that act in the environment of a rollout's task, and `submit`, as tools of an executor.
 *
 * in   a call, with the files that it finds        out  its outcome, and the files that it left
 * Invariant: a call that cannot get an environment rejects if another try may succeed, so that its lease ends and it is
 * assigned again; otherwise the model gets the reason.
 */
import { endedSteps, type RolloutEnvironments } from '../../environments'
import { submitTool } from '../../environments/tools/schemas'
import { toolOutcome } from '../../kernels'
import type { EnvironmentAt } from '../../messages/facts'
import { TroupeError } from '../../runtime/errors'
import type { Tool } from './toolPort'

export function environmentTool(name: string, environments: () => Promise<RolloutEnvironments>): Tool {
  return async (args, { timeoutMs, trajectory, environment: at }, signal) => {
    if (name === submitTool.name && isInLastStep(at)) return toolOutcome({ status: 'ok', exitCode: 0 })
    if (at === undefined || trajectory === undefined)
      return toolOutcome({ status: 'rejected', reason: `the task has no environment for the tool '${name}'` })
    try {
      return await (await environments()).call(trajectory, at, { tool: name, arguments: args, timeoutMs }, signal)
    } catch (thrown) {
      signal.throwIfAborted()
      if (!(thrown instanceof TroupeError) || thrown.retriable) throw thrown
      return toolOutcome({ status: 'rejected', reason: thrown.message })
    }
  }
}

/**
 * True in the last step of a task, whose verifier runs when the rollout has ended: `submit` then needs no environment.
 * Calls of `submit` in tasks of one step carry no environment.
 */
const isInLastStep = (at: EnvironmentAt | undefined): boolean =>
  at === undefined || endedSteps(at.calls).length + 1 >= (at.task.steps?.count ?? 1)
