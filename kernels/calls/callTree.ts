/**
 * Builds the tree of calls of a captured session (one rollout of an agent whose model calls the gateway recorded). A
 * session is opened anew for each agent process that works on it; calls of earlier openings do not count.
 *
 * in   facts of one session, in the log's order
 * out  a node for each call of the latest opening, with its children
 * A node's context is its parent's context, the parent's sampled tokens and its own `started.tokens`.
 * Invariant: repeated openings, starts and answers, and answers to earlier attempts, change nothing.
 */
import type { CallFact, CallFinished, CallStarted, SessionOpened } from '../../messages/facts'

export interface CallNode {
  /** `call.started` of the latest attempt. */
  readonly started: CallStarted
  /** Answer to the latest attempt; null while the attempt runs. It stays null if the process died before the answer. */
  readonly finished: CallFinished | null
  /** False if the latest `call.delivered` after the attempt's start says that no client got the answer. */
  readonly delivered: boolean
  /** Calls that continue this one, in the order of their starts. */
  readonly children: readonly number[]
}

export interface CallTree {
  readonly opened: SessionOpened | null
  /** Nodes by the number of their call; a call of an earlier opening has none. */
  readonly nodes: ReadonlyMap<number, CallNode>
  /** Number that the next call gets: above the numbers of all calls so far, those of earlier openings included. */
  readonly nextCall: number
}

export const emptyTree: CallTree = { opened: null, nodes: new Map(), nextCall: 0 }

export const isCallFact = (fact: { readonly type: string }): fact is CallFact =>
  fact.type === 'session.opened' ||
  fact.type === 'call.started' ||
  fact.type === 'call.finished' ||
  fact.type === 'call.delivered'

/** Builds the tree from all facts of a session; facts of other types are ignored. */
export function callTree(facts: Iterable<{ readonly type: string }>): CallTree {
  const growing = growingTree()
  for (const fact of facts) if (isCallFact(fact)) growing.add(fact)
  return growing.tree
}

/** A tree that is changed in place: `tree` includes a fact as soon as `add` returns. */
export interface GrowingTree {
  readonly tree: CallTree
  /** Applies a fact; returns false if it changes nothing. */
  add(fact: CallFact): boolean
  /** Numbers the next calls from `call` on: lower numbers belong to openings whose facts were not read. */
  skipTo(call: number): void
}

export function growingTree(): GrowingTree {
  const nodes = new Map<number, CallNode>()
  const tree = { opened: null as SessionOpened | null, nodes, nextCall: 0 }

  function start(fact: CallStarted): boolean {
    tree.nextCall = Math.max(tree.nextCall, fact.call + 1)
    if (fact.opening !== (tree.opened?.opening ?? 0)) return false
    const known = nodes.get(fact.call)
    if (known !== undefined && known.started.attempt >= fact.attempt) return false
    nodes.set(fact.call, { started: fact, finished: null, delivered: true, children: known?.children ?? [] })
    const parent = fact.parent === null || known !== undefined ? undefined : nodes.get(fact.parent)
    if (parent !== undefined) nodes.set(fact.parent!, { ...parent, children: [...parent.children, fact.call] })
    return true
  }

  return {
    tree,
    skipTo(call) {
      tree.nextCall = Math.max(tree.nextCall, call)
    },
    add(fact) {
      switch (fact.type) {
        case 'session.opened':
          if (tree.opened !== null && fact.opening <= tree.opened.opening) return false
          tree.opened = fact
          nodes.clear()
          return true
        case 'call.started':
          return start(fact)
        case 'call.finished': {
          const node = nodes.get(fact.call)
          if (node === undefined || node.finished !== null || node.started.attempt !== fact.attempt) return false
          nodes.set(fact.call, { ...node, finished: fact })
          return true
        }
        case 'call.delivered': {
          const node = nodes.get(fact.call)
          if (node === undefined || node.delivered === fact.delivered) return false
          nodes.set(fact.call, { ...node, delivered: fact.delivered })
          return true
        }
      }
    },
  }
}

/** Returns the calls from the tree's root to this call, in that order. @throws RangeError if a parent is missing */
export function pathTo(tree: CallTree, call: number): readonly CallNode[] {
  const path: CallNode[] = []
  for (let at: number | null = call; at !== null; ) {
    const node = tree.nodes.get(at)
    if (node === undefined) throw new RangeError(`call ${call} continues call ${at}, which the session does not have`)
    path.push(node)
    at = node.started.parent
  }
  return path.reverse()
}

/**
 * True if the call's tokens are part of the rollout: an engine answered it, and the client got the answer, which
 * another call that continues it proves as well.
 */
export function counts(tree: CallTree, call: number): boolean {
  const node = tree.nodes.get(call)
  if (node?.finished == null || node.finished.finish === 'failed') return false
  return node.delivered || node.children.length > 0
}
