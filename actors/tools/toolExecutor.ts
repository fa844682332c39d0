/**
 * Tool executor: runs the tool calls of models, every one of its topic, as it comes. For calls that are shared out
 * between executors see `joinExecutor`.
 *
 * in   tool.execute        out  tool.completed, through a request to the tool
 * Invariant: every call is answered once for each attempt. It holds no state: a call that is lost with its executor is
 * asked for again by the coordinator.
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
