/**
 * Inbox executor: one of several tool executors. It runs the calls that a dispatcher puts into its inbox.
 *
 * in   tools.assign (for this executor, and for this start of it: its incarnation), ticks
 * out  requests to run calls and to report offers
 * Invariant: the behaviour holds no state. Its port knows which calls run; when this executor dies, the leases of its
 * calls end and the dispatcher assigns the calls to another executor.
 */
import type { AssignTools, ExecuteTool } from '../../messages/commands'
import type { ExecutorId } from '../../messages/ids'
import { type Behaviour, nothing } from '../../runtime/host/behaviour'

export type ExecutorRequest =
  | { readonly kind: 'run'; readonly ask: ExecuteTool }
  /** Reports the slots that the executor offers and the calls that it holds. */
  | { readonly kind: 'offer' }

export function inboxExecutor(id: ExecutorId, incarnation: string): Behaviour<null, AssignTools, ExecutorRequest> {
  const offer = { ...nothing, requests: [{ kind: 'offer' }] } as const
  return {
    name: `tool-executor.${id}`,
    initial: () => null,
    evolve: state => state,
    decide(_state, input) {
      switch (input.type) {
        case 'tools.assign':
          return input.executor === id && input.incarnation === incarnation
            ? { ...nothing, requests: input.calls.map(ask => ({ kind: 'run', ask })) }
            : nothing
        case 'tick':
          return offer
        default:
          return nothing
      }
    },
    pending: () => offer,
  }
}
