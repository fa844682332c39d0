/**
 * The role `tools`: a sandbox, MCP servers, and the executor that takes calls for its lanes.
 * in   tool calls, by credits        out  their results
 */
import { executorId } from '../../../messages/ids'
import { openSandbox } from '../../../sandbox'
import { joinExecutor } from '../../tools/joinExecutor'
import { openRunTools } from '../../tools/runTools'
import type { Scope } from './scope'

/** Tool calls that run when a process is stopped have this long to end, so that their results are recorded. */
const drainMs = 5000
const givenToolLanes = 1024

export async function startTools(scope: Scope, name: string): Promise<void> {
  const { options, troupe } = scope
  const { config, recipe, log } = options
  const { lanes } = config.tools
  const sandbox = await openSandbox(lanes === undefined ? {} : { lanes })
  scope.onClose(() => sandbox.close())
  const opened = options.tools === undefined ? await openRunTools({ config, recipe, log }, sandbox) : undefined
  if (opened !== undefined) scope.onClose(() => opened.close())
  const executor = await joinExecutor(troupe, {
    id: executorId(name),
    // Tools that were given share nothing that we know of: they run as they come.
    lanes: opened === undefined ? givenToolLanes : sandbox.lanes,
    tools: options.tools ?? opened!.tools,
  })
  scope.onClose(() => executor.leave({ drainMs }))
}
