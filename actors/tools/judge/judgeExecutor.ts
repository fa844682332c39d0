/**
 * An executor of a judge: runs submissions, which a front (`busSandbox.ts`) puts on the bus, in a sandbox of this host.
 *
 * in   tool.execute with a RunRequest in its arguments        out  code.ended with the sandbox's RunResult
 * Invariant: a result fits into a record, since at most MAX_STREAM_BYTES of each output stream are captured; the result
 * has the stream's true size.
 */
import type { ExecuteTool } from '../../../messages/commands'
import type { Port } from '../../../runtime/host/host'
import { SandboxError } from '../../../sandbox/errors'
import type { RunRequest, Sandbox } from '../../../sandbox/sandbox'
import { toolKey } from '../toolPort'

/** Name under which executors of a judge offer their sandbox to the dispatcher. */
export const SANDBOX_TOOL = 'sandbox'
/** Upper bound on the characters of a submission's code and input together; a record of 900 KiB holds them as UTF-8. */
export const MAX_CALL_CHARS = 300_000
const MAX_STREAM_BYTES = 384 * 1024

export function judgePort(sandbox: Sandbox): Port<ExecuteTool> {
  return async (ask, signal) => {
    const { front, request } = ask.arguments as { front: string; request: Omit<RunRequest, 'id'> }
    const call = toolKey(ask)
    const maxOutputBytes = Math.min(request.maxOutputBytes ?? MAX_STREAM_BYTES, MAX_STREAM_BYTES)
    try {
      const result = await sandbox.run({ ...request, maxOutputBytes, id: call }, signal)
      return { facts: [], commands: [{ type: 'code.ended', front, call, result: { ...result } }] }
    } catch (thrown) {
      // The call gets no answer, so its lease ends and it is assigned again, to this executor or to another one.
      if (thrown instanceof SandboxError && thrown.retriable) return undefined
      throw thrown
    }
  }
}
