/**
 * Finds the tokens that a trajectory sampled, generation by generation, and the contexts that they were sampled under.
 *
 * in   a trajectory; for a captured session, the labels of the calls that are trained on
 * out  pieces: the tokens of one attempt of a turn, or of one call; sequences: contexts in which these are marked
 * Invariant: the pieces of a captured session are the sampled tokens of its training rows (`callRows`), each once.
 * Calls that a fork copied are left out: their tokens were sampled, and count, in the session that was forked. The
 * marked tokens of all sequences, one after the other, are the tokens of all pieces, in the same order.
 */
import { messagesOf } from '../../gateway/session/session'
import { assembleSequence, type CallNode, type CallRow, callRows, callTree, pathTo, trainedLabels } from '../../kernels'
import type { CallLabel, CallStarted, TurnCompleted, TurnInterrupted } from '../../messages/facts'
import type { TrajectoryId } from '../../messages/ids'
import { callFactsIn, factsIn, isCaptured, type Trajectory } from '../trajectories/trajectory'

export interface SampledPiece {
  /** Turn that the tokens were sampled for, or number of the call of a captured session. */
  readonly turn: number
  /** True if the context ends with a tool response (and what the agent added to it). */
  readonly followsTool: boolean
  readonly tokens: Int32Array
  readonly logprobs: Float32Array
  readonly entropies?: Float32Array
}

export interface SampledSequence {
  readonly trajectory: TrajectoryId
  readonly tokens: Int32Array
  /** [tokens] 1 for tokens that belong to a piece, else 0. */
  readonly mask: Uint8Array
  /** Policy version that sampled each token with mask 1, in their order. */
  readonly versions: readonly number[]
  readonly temperature: number
}

/** Numbers of sampled tokens that are in no piece of a captured session. */
export interface LeftOut {
  /** Tokens of calls that are not trained on: their label is not trained, or no client received the answer. */
  readonly untrained: number
  /** Tokens of calls that a fork copied. */
  readonly copied: number
}

export function sampledPieces(one: Trajectory, labels?: readonly CallLabel[]): readonly SampledPiece[] {
  if (!isCaptured(one)) return factsIn(one).filter(isSampled).map(turnPiece)
  return conversationsOf(one, labels).flatMap(({ nodes }) => nodes.map(callPiece))
}

/**
 * Returns the sequences that hold the trajectory's pieces. `temperature`: that of the run's own rollouts; a captured
 * session has the temperature of each call. @throws RangeError if lengths in the log do not add up
 */
export function sampledSequences(
  one: Trajectory,
  temperature: number,
  labels?: readonly CallLabel[],
): readonly SampledSequence[] {
  if (isCaptured(one)) return conversationsOf(one, labels).map(conversation => sequenceOf(one.id, conversation))
  const { tokens, mask, versions } = assembleSequence(factsIn(one))
  return [{ trajectory: one.id, tokens, mask, versions: marked(versions, mask), temperature }]
}

/** Counts the sampled tokens of a captured session that are in none of its `pieces`; 0 for other trajectories. */
export function leftOutOf(one: Trajectory, pieces: readonly SampledPiece[]): LeftOut {
  if (!isCaptured(one)) return { untrained: 0, copied: 0 }
  let copied = 0
  let sampled = 0
  for (const { started, finished } of callTree(callFactsIn(one)).nodes.values()) {
    const n = finished?.tokens.length ?? 0
    if (started.copyOf === undefined) sampled += n
    else copied += n
  }
  return { untrained: sampled - pieces.reduce((sum, { tokens }) => sum + tokens.length, 0), copied }
}

/** A training row, with those of its trained calls that no fork copied and that have one temperature. */
interface Conversation {
  readonly row: CallRow
  readonly path: readonly CallNode[]
  readonly nodes: readonly CallNode[]
}

function conversationsOf(one: Trajectory, labels: readonly CallLabel[] = trainedLabels): readonly Conversation[] {
  const tree = callTree(callFactsIn(one))
  return callRows(tree, labels).flatMap((row): Conversation[] => {
    const path = pathTo(tree, row.leaf)
    const byTemperature = new Map<number, CallNode[]>()
    for (const call of row.calls) {
      const node = tree.nodes.get(call)!
      const { copyOf, sampling } = node.started
      if (copyOf !== undefined) continue
      const known = byTemperature.get(sampling.temperature)
      if (known === undefined) byTemperature.set(sampling.temperature, [node])
      else known.push(node)
    }
    return [...byTemperature.values()].map(nodes => ({ row, path, nodes }))
  })
}

function sequenceOf(trajectory: TrajectoryId, { row, path, nodes }: Conversation): SampledSequence {
  const mask = new Uint8Array(row.tokens.length)
  const own = new Set(nodes)
  let at = 0
  for (const node of path) {
    const start = at + node.started.tokens.length
    at = start + node.finished!.tokens.length
    if (own.has(node)) mask.fill(1, start, at)
  }
  const { temperature } = nodes[0]!.started.sampling
  return { trajectory, tokens: row.tokens, mask, versions: marked(row.versions, mask), temperature }
}

const marked = (values: Int32Array, mask: Uint8Array): readonly number[] =>
  Array.from(values.filter((_, i) => mask[i] === 1))

/** Type guard for facts that carry sampled tokens; an interrupted turn carries the tokens before its interruption. */
const isSampled = (fact: { readonly type: string }): fact is TurnCompleted | TurnInterrupted =>
  fact.type === 'turn.completed' || fact.type === 'turn.interrupted'

// Every turn but the first continues after a tool response.
const turnPiece = ({ turn, tokens, logprobs, entropies }: TurnCompleted | TurnInterrupted): SampledPiece => ({
  ...{ turn, followsTool: turn > 0, tokens, logprobs },
  ...(entropies === undefined ? {} : { entropies }),
})

function callPiece({ started, finished }: CallNode): SampledPiece {
  const { tokens, logprobs, entropies } = finished!
  return {
    ...{ turn: started.call, followsTool: endsWithTool(started), tokens, logprobs },
    ...(entropies === undefined ? {} : { entropies }),
  }
}

/** True if a tool response is among the messages after the last answer: agents add reminders of their own after it. */
function endsWithTool(started: CallStarted): boolean {
  const messages = messagesOf(started)
  const answer = messages.findLastIndex(({ role }) => role === 'assistant')
  return messages.slice(answer + 1).some(({ role }) => role === 'tool')
}
