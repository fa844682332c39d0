/**
 * Inbox executor: one of several tool executors. It runs the calls that a dispatcher puts into its inbox.
 *
 * in   ticks; tools.assign, tools.abort and executor.refused for this incarnation (start) of this executor
 * out  requests to run and to end calls, and to report offers
 * Invariant: the behaviour holds no state. Its port knows which calls run; when this executor dies, the leases of its
 * calls end and the dispatcher assigns the calls to another executor.
 */
import type { AbortTools, AssignTools, ExecuteTool, RefuseExecutor } from '../../messages/commands'
import type { ExecutorId } from '../../messages/ids'
import { type Behaviour, nothing } from '../../runtime/host/behaviour'

export type ExecutorRequest =
  | { readonly kind: 'run'; readonly ask: ExecuteTool }
  /** Reports the slots that the executor offers and the calls that it holds. */
  | { readonly kind: 'offer' }
  /** Ends the calls with these keys, whose answers nobody waits for. */
  | { readonly kind: 'abort'; readonly calls: readonly string[] }
  /** The dispatcher does not let this executor join. */
  | { readonly kind: 'refused'; readonly reason: string }

type InboxInput = AssignTools | AbortTools | RefuseExecutor

export function inboxExecutor(id: ExecutorId, incarnation: string): Behaviour<null, InboxInput, ExecutorRequest> {
  const offer = { ...nothing, requests: [{ kind: 'offer' }] } as const
  return {
    name: `tool-executor.${id}`,
    initial: () => null,
    evolve: state => state,
    decide(_state, input) {
      if (input.type === 'tick') return offer
      if (!('incarnation' in input) || input.executor !== id || input.incarnation !== incarnation) return nothing
      switch (input.type) {
        case 'tools.assign':
          return { ...nothing, requests: input.calls.map(ask => ({ kind: 'run', ask })) }
        case 'tools.abort':
          return { ...nothing, requests: [{ kind: 'abort', calls: input.calls }] }
        case 'executor.refused':
          return { ...nothing, requests: [{ kind: 'refused', reason: input.reason }] }
      }
    },
    pending: () => offer,
  }
}
