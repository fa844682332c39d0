/** Cuts the calls that an executor gets into commands, each of which fits into a record of the log. */
import type { AssignTools, ExecuteTool } from '../../messages/commands'

/** Upper bounds on the calls of one `tools.assign` and on their bytes; a single call may have more bytes. */
const maxBatch = 64
const maxBatchBytes = 512 * 1024

/** @param calls requests with the bytes of their arguments, in the order in which the executor runs them */
export function assignCommands(
  { id, incarnation }: { readonly id: AssignTools['executor']; readonly incarnation: string },
  calls: readonly { readonly ask: ExecuteTool; readonly bytes: number }[],
): AssignTools[] {
  const commands: AssignTools[] = []
  let batch: ExecuteTool[] = []
  let bytes = 0
  const close = () => commands.push({ type: 'tools.assign', executor: id, incarnation, calls: batch })
  for (const call of calls) {
    if (batch.length >= maxBatch || (batch.length > 0 && bytes + call.bytes > maxBatchBytes)) {
      close()
      batch = []
      bytes = 0
    }
    batch.push(call.ask)
    bytes += call.bytes
  }
  close()
  return commands
}
