/**
 * Lists the calls of a captured session as a tree: what each call continues, what it added, and its answer.
 *
 * in   a trajectory whose turns another program asked for, through the gateway        out  calls in the tree's order
 * Invariant: a call stands below the call that it continues. The first that continues it keeps its depth; each further
 * one is a branch, one level deeper. If the session was opened again, earlier calls are left out, as they are in
 * training.
 */
import { type CallNode, type CallTree, callTree, counts } from '../../../kernels'
import { placeText } from '../../../replay/log/place'
import { addedTexts } from '../../../replay/trajectories/addedTexts'
import { callFactsIn, type Trajectory } from '../../../replay/trajectories/trajectory'
import type { Part } from '../../api'
import { shownLine, shownText } from '../shownText'

type CapturedCall = Extract<Part, { kind: 'captured' }>

const mostCalls = 500

/** Returns the session's first `mostCalls` calls in the tree's order; none for a rollout of Troupe's coordinator. */
export function capturedCalls(one: Trajectory): readonly CapturedCall[] {
  const facts = callFactsIn(one)
  if (facts.length === 0) return []
  const tree = callTree(facts)
  const places = new Map<number, string>()
  for (const entry of one.entries) {
    const { message } = entry
    if (message.type === 'call.started' || message.type === 'call.finished') places.set(message.call, placeText(entry))
  }
  const parts: CapturedCall[] = []
  // Depth first, without recursion: a session of a long agent is one chain of many calls.
  const roots = [...tree.nodes].filter(([, { started }]) => started.parent === null).map(([call]) => call)
  const open = roots.reverse().map(call => ({ call, depth: 0 }))
  for (let next = open.pop(); next !== undefined && parts.length < mostCalls; next = open.pop()) {
    const { call, depth } = next
    const node = tree.nodes.get(call)!
    parts.push(partOf(tree, node, depth, places.get(call) ?? ''))
    node.children.forEach((child, i) => {
      open.push({ call: child, depth: depth + (i === 0 ? 0 : 1) })
    })
    // The call pushed last is taken first, so branches come before the continuation, each below the call that it left.
  }
  return parts
}

function partOf(
  tree: CallTree,
  { started, finished, delivered }: CallNode,
  depth: number,
  place: string,
): CapturedCall {
  const { call, attempt, parent, label, branch, dialect } = started
  return {
    kind: 'captured',
    ...{ call, attempt, parent, depth, label, branch: branch ?? '', dialect },
    model: shownLine(started.model, 80),
    messages: addedTexts(started).map(({ role, text }) => ({ role: shownLine(role, 40), content: shownText(text) })),
    tokens: started.tokens.length,
    contextTokens: started.contextTokens,
    answer: shownText(finished === null ? '' : finished.finish === 'failed' ? finished.error : finished.text),
    finish: finished?.finish ?? 'open',
    answerTokens: finished?.tokens.length ?? 0,
    cachedTokens: finished?.cachedTokens ?? 0,
    engine: shownLine(finished?.engine ?? '', 80),
    versions: [...new Set((finished?.segments ?? []).map(segment => segment.policyVersion))],
    generationMs: finished === null ? null : Math.max(0, finished.timing.endedAt - finished.timing.startedAt),
    delivered,
    counts: counts(tree, call),
    ...{ place, at: started.at },
  }
}
