/**
 * Lists the tool calls of a trajectory, each with its arguments and its result.
 *
 * in   a trajectory        out  a record for each finished call, in the log's order
 */

import { answerTo, applyFact, messagesOf, newSession, type SessionState } from '../../gateway/session/session'
import type { ToolAsked } from '../../messages/facts'
import { callFactsIn, factsIn, type Trajectory } from './trajectory'

export interface ToolCallRecord {
  /**
   * Turn that made the call, counted from 0; in a captured session the number of the call that sent the result back.
   */
  readonly turn: number
  /** Position of the call in its turn, counted from 0. */
  readonly call: number
  readonly tool: string
  /** Arguments of the call; empty when the call was never sent to an executor, or a captured session lacks them. */
  readonly arguments: Readonly<Record<string, unknown>>
  /** Status of the call: ok, error, timeout, malformed or unknown-tool; `unknown` if the agent does not say it. */
  readonly status: string
  /** The result as the model was shown it. */
  readonly text: string
  readonly stdout: string
  readonly stderr: string
  readonly exitCode: number | null
  /** Name of the signal that killed the code; absent when none did. */
  readonly signal?: string
  readonly wallMs: number
  /**
   * true: an executor, or the agent of a captured session, ran the call; false: it was malformed, or its tool is
   * unknown.
   */
  readonly ran: boolean
}

export function toolCallsOf(trajectory: Trajectory): readonly ToolCallRecord[] {
  const captured = callFactsIn(trajectory)
  if (captured.length > 0) return capturedToolCalls(trajectory)
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

/** Rebuilds the state of a captured session from the facts of its calls. */
export function sessionOf(trajectory: Trajectory): SessionState {
  const session = newSession(trajectory.request, {})
  for (const fact of callFactsIn(trajectory)) applyFact(session, fact, {})
  return session
}

/**
 * Tool calls of a captured session: those whose results its agent sent back. `turn` is the call that sent the result.
 */
function capturedToolCalls(trajectory: Trajectory): readonly ToolCallRecord[] {
  const session = sessionOf(trajectory)
  const nodes = [...session.calls.tree.nodes.values()]
  const uses = new Map(
    nodes.flatMap(({ started }) => answerTo(session, started.call)?.toolUses ?? []).map(use => [use.id, use]),
  )
  const unmeasured = { stdout: '', stderr: '', exitCode: null, wallMs: 0, ran: true }
  return nodes.flatMap(({ started }) =>
    messagesOf(started)
      .filter(message => message.role === 'tool')
      .map((result, call): ToolCallRecord => {
        const use = uses.get(result.toolUseId)
        const status = result.isError === null ? 'unknown' : result.isError ? 'error' : 'ok'
        const args = use === undefined ? {} : (JSON.parse(use.arguments) as Record<string, unknown>)
        return {
          ...unmeasured,
          turn: started.call,
          call,
          tool: use?.name ?? '',
          arguments: args,
          status,
          text: result.content,
        }
      }),
  )
}
