/**
 * Lists the tool calls of a trajectory, each with its arguments and its result.
 *
 * in   a trajectory        out  a record for each finished call, in the log's order
 */
import type { ToolAsked } from '../../messages/facts'
import { factsIn, type Trajectory } from './trajectory'

export interface ToolCallRecord {
  /** Turn that made the call, counted from 0. */
  readonly turn: number
  /** Position of the call in its turn, counted from 0. */
  readonly call: number
  readonly tool: string
  /** Arguments of the call; empty when the call was never sent to an executor. */
  readonly arguments: Readonly<Record<string, unknown>>
  /** Status of the call: ok, error, timeout, malformed or unknown-tool. */
  readonly status: string
  /** The result as the model was shown it. */
  readonly text: string
  readonly stdout: string
  readonly stderr: string
  readonly exitCode: number | null
  /** Name of the signal that killed the code; absent when none did. */
  readonly signal?: string
  readonly wallMs: number
  /** true: an executor ran the call; false: it was malformed, or its tool is unknown. */
  readonly ran: boolean
}

export function toolCallsOf(trajectory: Trajectory): readonly ToolCallRecord[] {
  const asked = new Map<string, ToolAsked>()
  const calls: ToolCallRecord[] = []
  for (const fact of factsIn(trajectory)) {
    if (fact.type === 'tool.asked') asked.set(`${fact.turn}#${fact.call}`, fact)
    if (fact.type !== 'tool.completed') continue
    const { turn, call, tool, status, text, stdout, stderr, exitCode, signal, wallMs } = fact
    const args = asked.get(`${turn}#${call}`)?.arguments ?? {}
    calls.push({
      ...{ turn, call, tool, arguments: args, status, text, stdout, stderr, exitCode, wallMs },
      ...(signal === undefined ? {} : { signal }),
      ran: fact.executor !== null,
    })
  }
  return calls
}
