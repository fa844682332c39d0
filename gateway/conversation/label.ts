/**
 * Labels a call by its use: the agent's own conversation, one of its sub-agents, one after a compaction, or an
 * auxiliary call.
 *
 * in   the call's place in the session, the client's headers and model, the session's first call        out  a label
 * The first that applies decides: the client's own label (`x-troupe-label`); a small model's name (`aux`); the label of
 * the call that this one continues; a parent session (header `x-parent-session-id`), or another lane (header
 * `x-session-id`) than the first call's (`subagent`); a compaction (the conversation begins anew with fewer messages);
 * else `main`, except for a new conversation after the first call. That is `aux` if it has at most two messages and no
 * tools while the first call had tools; `main` if it has tools and the first call had none, as some agents first ask for
 * a title; and `subagent` otherwise.
 */
import type { BranchReason, CallLabel } from '../../messages/facts'

export interface LabelHints {
  /** Header `x-troupe-label`. */
  readonly said?: string | undefined
  readonly model: string
  /** Header `x-session-id` of harnesses that run several agents at once. */
  readonly lane?: string | undefined
  /** Header `x-parent-session-id`. */
  readonly parentLane?: string | undefined
  readonly hasTools: boolean
  readonly messages: number
}

export interface LabelContext {
  readonly branch: BranchReason | null
  /** Label of the call that this one continues; undefined if its context begins anew. */
  readonly continued?: CallLabel
  /** First call of the session: its lane, and if it offered tools. */
  readonly first?: { readonly lane?: string; readonly hasTools: boolean }
}

const labels: ReadonlySet<string> = new Set<CallLabel>(['main', 'subagent', 'compaction', 'aux'])
/** Names of small, fast models that harnesses use for titles, probes and summaries. */
const smallModel = /haiku|small[-_]fast|[-_]nano\b/i

export function labelOf(hints: LabelHints, context: LabelContext): CallLabel {
  if (hints.said !== undefined && labels.has(hints.said)) return hints.said as CallLabel
  if (smallModel.test(hints.model)) return 'aux'
  if (context.continued !== undefined) return context.continued
  if (hints.parentLane !== undefined && hints.parentLane !== '') return 'subagent'
  const { first } = context
  if (first === undefined) return 'main'
  if (hints.lane !== undefined && first.lane !== undefined && hints.lane !== first.lane) return 'subagent'
  if (context.branch === 'compaction') return 'compaction'
  if (context.branch !== 'new-conversation') return 'main'
  if (!first.hasTools && hints.hasTools) return 'main'
  return first.hasTools && !hints.hasTools && hints.messages <= 2 ? 'aux' : 'subagent'
}
