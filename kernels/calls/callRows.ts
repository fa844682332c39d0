/**
 * Makes the training rows of a captured session: one rollout of an agent whose model calls the gateway recorded. A call
 * counts if an engine answered it and the agent got the answer. A conversation is a counting call that no other
 * counting call continues, with all calls before it. It gives one row if it has sampled tokens that no earlier row
 * trains and whose call has a trained label.
 *
 * in   a session's tree of calls, the labels that are trained on
 * out  sequences: all tokens of a conversation, with mask 1 on those that this row trains
 * Invariant: each sampled token of a call that counts, and has a label that is trained on, has mask 1 in exactly one
 * row, with the logprob and the policy version that it was sampled under. No other token has mask 1. Lengths that do
 * not add up are an error, never repaired.
 */
import type { CallLabel, PolicySegment } from '../../messages/facts'
import type { AssembledSequence } from '../trainingSequence'
import { type CallNode, type CallTree, counts, pathTo } from './callTree'

/**
 * Training sequence of one conversation. `trajectory` is the rollout, which all rows of a session share. Only the
 * sampled tokens of `calls` have mask 1, logprobs and versions, and count in `sampledTokens`.
 */
export interface CallRow extends AssembledSequence {
  /** Calls whose sampled tokens this row trains, ascending. */
  readonly calls: readonly number[]
  /** Call with which the conversation ends. */
  readonly leaf: number
}

/** Labels of the calls that are trained on by default: all labels but `aux` (titles, probes, token counts). */
export const trainedLabels: readonly CallLabel[] = ['main', 'subagent', 'compaction']

/**
 * Makes the rows in the order of the conversations' last calls. @throws RangeError that names the call whose lengths or
 * policy segments do not add up, or that continues a call without an answer
 */
export function callRows(tree: CallTree, labels: readonly CallLabel[] = trainedLabels): readonly CallRow[] {
  const kept = [...tree.nodes.keys()].filter(call => counts(tree, call)).sort((a, b) => a - b)
  const isKept = new Set(kept)
  const continued = new Set(kept.map(call => tree.nodes.get(call)!.started.parent).filter(one => one !== null))
  const owned = new Set<number>()
  const rows: CallRow[] = []
  for (const leaf of kept) {
    if (continued.has(leaf)) continue
    const path = pathTo(tree, leaf)
    const missing = path.find(({ started }) => !isKept.has(started.call))
    if (missing !== undefined) fail(leaf, `it continues call ${missing.started.call}, which has no answer that counts`)
    const own = path.filter(({ started }) => !owned.has(started.call) && labels.includes(started.label))
    const sampled = own.filter(({ finished }) => finished!.tokens.length > 0)
    for (const { started } of path) owned.add(started.call)
    if (sampled.length > 0) rows.push(rowOf(path, new Set(sampled.map(({ started }) => started.call))))
  }
  return rows
}

function rowOf(path: readonly CallNode[], trains: ReadonlySet<number>): CallRow {
  const length = path.reduce((sum, node) => sum + node.started.tokens.length + node.finished!.tokens.length, 0)
  const tokens = new Int32Array(length)
  const mask = new Uint8Array(length)
  const engineLogprobs = new Float32Array(length)
  const versions = new Int32Array(length).fill(-1)
  let at = 0
  let oldestVersion: number | null = null
  for (const { started, finished } of path) {
    tokens.set(started.tokens, at)
    at += started.tokens.length
    const answer = finished!
    const n = answer.tokens.length
    if (at !== started.contextTokens)
      fail(started.call, `its context has ${at} tokens in the log, expected ${started.contextTokens}`)
    if (answer.logprobs.length !== n) fail(started.call, `it has ${n} tokens but ${answer.logprobs.length} logprobs`)
    tokens.set(answer.tokens, at)
    if (trains.has(started.call)) {
      mask.fill(1, at, at + n)
      engineLogprobs.set(answer.logprobs, at)
      for (const { policyVersion, start, end } of covering(answer.segments, n, started.call)) {
        versions.fill(policyVersion, at + start, at + end)
        if (oldestVersion === null || policyVersion < oldestVersion) oldestVersion = policyVersion
      }
    }
    at += n
  }
  const calls = path.map(({ started }) => started.call).filter(call => trains.has(call))
  return {
    trajectory: path[0]!.started.trajectory,
    ...{ tokens, mask, engineLogprobs, versions, oldestVersion, calls },
    promptTokens: path[0]!.started.tokens.length,
    sampledTokens: mask.reduce((sum, bit) => sum + bit, 0),
    turns: path.length,
    leaf: path.at(-1)!.started.call,
  }
}

/** Returns the segments without empty ones. @throws RangeError unless they cover all `n` tokens, once each */
function covering(segments: readonly PolicySegment[], n: number, call: number): readonly PolicySegment[] {
  const filled = segments.filter(({ start, end }) => end > start)
  let next = 0
  for (const { start, end } of filled) {
    if (start !== next) break
    next = end
  }
  if (next !== n || (filled.at(-1)?.end ?? 0) !== n) {
    const listed = segments.map(({ start, end }) => `${start}-${end}`).join(', ')
    fail(call, `the policy segments ${listed || '(none)'} do not cover its ${n} tokens`)
  }
  return filled
}

function fail(call: number, problem: string): never {
  throw new RangeError(`call ${call}: ${problem}`)
}
