/**
 * Tool executor: runs every tool call of its topic as soon as it is read. To share calls between several executors, see
 * `joinExecutor`.
 *
 * in   tool.execute        out  tool.completed, through a request to the tool
 * Invariant: every call that is read gets one answer per attempt, unless the executor dies first. The executor holds no
 * state: the coordinator asks again for a call that is lost with its executor.
 */
import type { ExecuteTool } from '../../messages/commands'
import { type Behaviour, nothing } from '../../runtime/host/behaviour'

export function toolExecutor(): Behaviour<null, ExecuteTool, ExecuteTool> {
  return {
    name: 'tool-executor',
    initial: () => null,
    evolve: state => state,
    decide: (_state, input) => (input.type === 'tool.execute' ? { ...nothing, requests: [input] } : nothing),
    pending: () => nothing,
  }
}
