/**
 * The role `tools`: an actor that owns a sandbox and MCP servers, and the executor that runs tool calls. Python code
 * runs on the sandbox's workers.
 *
 * in   tool calls, assigned to the slots that the executor offers        out  their results
 */
import { executorId } from '../../../messages/ids'
import { TroupeError } from '../../../runtime/errors'
import { openSandbox, SandboxError } from '../../../sandbox'
import { codeOptions } from '../../tools/codeEnvironment'
import { type JoinedExecutor, joinExecutor } from '../../tools/joinExecutor'
import { openRunTools } from '../../tools/runTools'
import { processActor } from '../processActor'
import { embeddedUnder } from '../supervisor'
import { lazyEnvironments } from './environments'
import type { Branch, Scope } from './scope'

/** Time in ms that running tool calls get to end and be recorded when the executor leaves the run. */
const drainMs = 5000
/** Upper bound on the calls that run at once if an embedding program passes the tools in. */
const givenToolLanes = 1024

export async function startTools(scope: Scope, name: string): Promise<void> {
  const branch = await scope.under('tools')
  const { troupe } = branch
  let executor: JoinedExecutor | undefined
  const actor = processActor({
    name: 'sandbox-0',
    stopWithinMs: 20_000,
    // Before the first successful start, an error that is not retriable is final: the recipe or the machine is wrong.
    // Any other error is tried again.
    isFatal: (error, wasUp) => !wasUp && !isRetriable(error),
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

const isRetriable = (error: Error): boolean =>
  (error instanceof TroupeError || error instanceof SandboxError) && error.retriable

async function openTools(branch: Branch) {
  const { options } = branch
  const { config, recipe, log } = options
  const environments = lazyEnvironments(branch)
  const { lanes } = config.tools
  const sandbox = await openSandbox({ ...codeOptions(config.tools), ...(lanes === undefined ? {} : { lanes }) })
  try {
    const opened =
      options.tools === undefined
        ? await openRunTools({ config, recipe, log, environments: environments.open }, sandbox)
        : undefined
    return {
      tools: options.tools ?? opened!.tools,
      // The tools of an embedding program use no sandbox workers, whose number therefore does not bound their calls.
      lanes: opened === undefined ? givenToolLanes : sandbox.lanes,
      lost: new Promise<Error>(() => {}), // the sandbox itself restarts a worker that dies
      async close() {
        await opened?.close()
        await environments.close()
        await sandbox.close()
      },
    }
  } catch (thrown) {
    await sandbox.close()
    throw thrown
  }
}
