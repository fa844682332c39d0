/**
 * Tools that act in the environment of a rollout's task, and `submit`, as tools of an executor.
 *
 * in   a call, with the files that it finds        out  its outcome, and the files that it left
 * Invariant: a call that cannot get an environment rejects if another try may succeed, so that its lease ends and it is
 * assigned again; otherwise the model gets the reason.
 */
import type { RolloutEnvironments } from '../../environments'
import { submitTool } from '../../environments/tools/schemas'
import { toolOutcome } from '../../kernels'
import { TroupeError } from '../../runtime/errors'
import type { Tool } from './toolPort'

export function environmentTool(name: string, environments: () => Promise<RolloutEnvironments>): Tool {
  return async (args, { timeoutMs, trajectory, environment: at }, signal) => {
    // The end of a task of one step; of several steps, a call brings the files that the step's verifier judges.
    if (name === submitTool.name && at === undefined) return toolOutcome({ status: 'ok', exitCode: 0 })
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
