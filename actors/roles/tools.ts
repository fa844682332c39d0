/**
 * The role `tools`: a sandbox, and the executor that takes calls for its lanes.
 * in   tool calls, by credits        out  their results
 */
import { executorId } from '../../messages/ids'
import { openSandbox, pythonTool } from '../../sandbox'
import { joinExecutor } from '../joinExecutor'
import { pythonToolIn } from '../ports/pythonTool'
import type { Scope } from './scope'

/** Tool calls that run when a process is stopped have this long to end, so that their results are recorded. */
const drainMs = 5000
const givenToolLanes = 1024

export async function startTools(scope: Scope, name: string): Promise<void> {
  const { options, troupe } = scope
  const { lanes, memoryMb } = options.config.tools
  const sandbox = await openSandbox(lanes === undefined ? {} : { lanes })
  scope.onClose(() => sandbox.close())
  const executor = await joinExecutor(troupe, {
    id: executorId(name),
    // Tools that were given share nothing that we know of: they run as they come.
    lanes: options.tools === undefined ? sandbox.lanes : givenToolLanes,
    tools: options.tools ?? new Map([[pythonTool.name, pythonToolIn(sandbox, memoryMb)]]),
  })
  scope.onClose(() => executor.leave({ drainMs }))
}
