/**
 * The role `tools`: an actor that owns a sandbox and MCP servers, and the executor that takes calls for their lanes.
 * in   tool calls, by credits        out  their results
 */
import { executorId } from '../../../messages/ids'
import { TroupeError } from '../../../runtime/errors'
import { openSandbox } from '../../../sandbox'
import { type JoinedExecutor, joinExecutor } from '../../tools/joinExecutor'
import { openRunTools } from '../../tools/runTools'
import { processActor } from '../processActor'
import { embeddedUnder } from '../supervisor'
import type { Branch, Scope } from './scope'

/** Time for tool calls that run when a process is stopped: they end, and their results are recorded. */
const drainMs = 5000
const givenToolLanes = 1024

export async function startTools(scope: Scope, name: string): Promise<void> {
  const branch = await scope.under('tools')
  const { troupe } = branch
  let executor: JoinedExecutor | undefined
  const actor = processActor({
    name: 'sandbox-0',
    stopWithinMs: 20_000,
    // A sandbox or a tool that cannot be opened when the run begins is a fault of the recipe or the machine.
    isFatal: (error, wasUp) => !wasUp && !(error instanceof TroupeError && error.retriable),
    start: () => openTools(branch),
    async onUp({ tools, lanes }, context, onFailed) {
      const own = embeddedUnder(troupe, context, onFailed)
      executor = await joinExecutor(own, { id: executorId(name), lanes, tools })
    },
    async onDown() {
      const left = executor
      executor = undefined
      await left?.leave({ drainMs })
    },
  })
  await branch.processes('sandbox', [actor])
  await actor.current()
}

async function openTools({ options }: Branch) {
  const { config, recipe, log } = options
  const { lanes } = config.tools
  const sandbox = await openSandbox(lanes === undefined ? {} : { lanes })
  try {
    const opened = options.tools === undefined ? await openRunTools({ config, recipe, log }, sandbox) : undefined
    return {
      tools: options.tools ?? opened!.tools,
      // Tools that were given share nothing that we know of: they run as they come.
      lanes: opened === undefined ? givenToolLanes : sandbox.lanes,
      lost: new Promise<Error>(() => {}), // a lane that dies is the sandbox's own to start again
      async close() {
        await opened?.close()
        await sandbox.close()
      },
    }
  } catch (thrown) {
    await sandbox.close()
    throw thrown
  }
}
