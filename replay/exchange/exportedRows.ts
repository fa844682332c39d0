/**
 * Exports a captured session (the model calls of an agent behind the gateway) as its training rows: one JSON object for
 * each row, with the fields of an exported trajectory and those of the row itself.
 *
 * in   a captured session, the run's configuration, the optimizer step that trained on it
 * out  for each row the messages and tokens of its conversation, the calls whose tokens it trains, the session's reward
 * Invariant: rows, ids and logprobs are those that the trainer gets (`callRows`). All per-token arrays are as long as
 * `tokens`; each sampled token that is trained on has mask 1 in exactly one row of the session.
 */
import type { RecipeConfig } from '../../config'
import type { AssistantMessage, Message } from '../../gateway/conversation/message'
import { toolCalls } from '../../gateway/dialects/chat'
import { answerTo, messagesOf, type SessionState, toolsOf } from '../../gateway/session/session'
import { type CallNode, type CallRow, callRows, pathTo } from '../../kernels'
import type { TrainedIn } from '../learning/learnerLog'
import { sessionOf, toolCallsOf } from '../trajectories/toolCalls'
import type { Trajectory } from '../trajectories/trajectory'
import {
  type ExportedTrajectory,
  type ExportedTurn,
  type OpenAiMessage,
  rolloutFields,
  tokenFields,
} from './exportedTrajectory'

export const rowFormat = 'troupe-captured-row'

/** An answered call of the row's conversation; `start` and `end` are the range of its sampled tokens. */
export interface ExportedCall extends Omit<ExportedTurn, 'appended'> {
  /** Number of the call in its session; `turn` counts only the calls of this row. */
  readonly call: number
  readonly label: string
  /** Reason why the call branched off or began anew; null if it only continues the call before it. */
  readonly branch: string | null
}

/** Message of a row. `reasoning_content`: the model's thinking before its answer; absent if there was none. */
interface RowMessage extends OpenAiMessage {
  readonly reasoning_content?: string
}

/** A training row. `trajectory` and the fields about its request, end and reward are those of the whole session. */
export interface ExportedRow
  extends Omit<ExportedTrajectory, 'format' | 'messages' | 'tools' | 'turns'>,
    Pick<CallRow, 'calls' | 'leaf'> {
  readonly format: typeof rowFormat
  /** Number of the row in its session, counted from 0. */
  readonly row: number
  /** Number of the session's rows. */
  readonly rows: number
  /** Schemas of the tools that the agent offered. */
  readonly tools: readonly unknown[]
  /** The whole conversation; its assistant messages are sampled answers, or what the agent sent in their place. */
  readonly messages: readonly RowMessage[]
  readonly turns: readonly ExportedCall[]
}

/**
 * Returns the rows in the order of their conversations' last calls; none if no call that is trained on has an answer
 * that its client received. @throws RangeError that names the call whose tokens do not add up in the log
 */
export function exportedRows(
  run: string,
  trajectory: Trajectory,
  config: RecipeConfig,
  trainedIn: TrainedIn | null,
): readonly ExportedRow[] {
  const session = sessionOf(trajectory)
  const calls = toolCallsOf(trajectory)
  return callRows(session.calls.tree, config.agent?.trains).map((row, i, { length }) => {
    const path = pathTo(session.calls.tree, row.leaf)
    const onPath = new Set(path.map(({ started }) => started.call))
    return {
      format: rowFormat,
      version: 1,
      ...rolloutFields(run, trajectory, config, trainedIn),
      ...{ row: i, rows: length, calls: row.calls, leaf: row.leaf },
      tools: JSON.parse(toolsOf(session, path.at(-1)!.started)) as readonly unknown[],
      messages: path.flatMap(node => conversationOf(session, node)),
      turns: turnsOf(path),
      toolCalls: calls.filter(({ turn }) => onPath.has(turn)),
      ...tokenFields(row),
    }
  })
}

/** Messages that a call added, and its answer. */
const conversationOf = (session: SessionState, { started }: CallNode): readonly RowMessage[] =>
  [...messagesOf(started), answerTo(session, started.call)!].map(message => openAiMessage(message))

function openAiMessage(message: Message): RowMessage {
  switch (message.role) {
    case 'system':
    case 'user':
      return { role: message.role, content: message.content }
    case 'tool':
      return { role: 'tool', tool_call_id: message.toolUseId, content: message.content }
    case 'assistant':
      return assistantMessage(message)
  }
}

function assistantMessage(message: AssistantMessage): RowMessage {
  const { content, thinking } = message
  const calls = toolCalls(message)
  return {
    role: 'assistant',
    content,
    ...(thinking === '' ? {} : { reasoning_content: thinking }),
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
  }
}

function turnsOf(path: readonly CallNode[]): readonly ExportedCall[] {
  let end = 0
  return path.map(({ started, finished }, turn) => {
    const { tokens, segments, engine, finish, text } = finished!
    const start = end + started.tokens.length
    end = start + tokens.length
    const policyVersions = [...new Set(segments.map(({ policyVersion }) => policyVersion))]
    const { call, label, branch } = started
    return { turn, call, label, branch, start, end, policyVersions, engine, finish, text }
  })
}
