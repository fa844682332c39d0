/**
 * A tool executor of `bench calls`, like one of the role `tools`: in a process of its own, or in that of plane.ts.
 *
 * in   a bus, a name      out  `ready` on stdout once it reads its inbox; it ends when its parent does
 */
import { codeOptions } from '../../../actors/tools/codeEnvironment'
import { joinExecutor } from '../../../actors/tools/joinExecutor'
import { pythonToolIn } from '../../../actors/tools/pythonTool'
import { executorId } from '../../../messages/ids'
import { memoryBlobs } from '../../../runtime/bus/blobs'
import type { Bus } from '../../../runtime/bus/bus'
import { openBus } from '../../../runtime/bus/open'
import { systemEffects } from '../../../runtime/effects'
import { openTroupe } from '../../../runtime/embed'
import { openSandbox, pythonTool } from '../../../sandbox'

export const RUN = 'calls'
export const PARTITIONS = 4

/**
 * Joins an executor; resolves with the function that ends it. @param zygotes number of its cores. Default: all that its
 * process may use
 */
export async function openExecutor(bus: Bus, name: string, zygotes?: number): Promise<() => Promise<void>> {
  // No record of this load is large enough for a blob, so a blob store in memory is enough.
  const troupe = await openTroupe({ bus, run: RUN, blobs: memoryBlobs(), partitions: PARTITIONS })
  const sandbox = await openSandbox({ ...codeOptions({}), ...(zygotes === undefined ? {} : { zygotes }) })
  const tools = new Map([[pythonTool.name, pythonToolIn(sandbox)]])
  const joined = await joinExecutor(troupe, { id: executorId(name), lanes: sandbox.lanes, tools })
  return async () => {
    await joined.leave()
    await troupe.close()
    await sandbox.close()
  }
}

async function main(address: string, name: string): Promise<void> {
  const bus = await openBus(address, { effects: systemEffects })
  const close = await openExecutor(bus, name)
  process.stdout.write('ready\n')
  process.stdin.resume().once('end', () => {
    void close()
      .then(() => bus.close())
      .then(() => process.exit(0))
  })
}

if (require.main === module) void main(process.argv[2]!, process.argv[3]!)
