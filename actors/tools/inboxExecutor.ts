/**
 * Inbox executor: one of several tool executors. It runs the calls that a dispatcher puts into its inbox.
 *
 * in   tools.assign (for this start of this executor), ticks        out  requests to run and to say what it offers
 * Invariant: it holds no state: what it runs is its port's to know, and what is lost with it is given to another when
 * its lease ends.
 */
import type { AssignTools, ExecuteTool } from '../../messages/commands'
import type { ExecutorId } from '../../messages/ids'
import { type Behaviour, nothing } from '../../runtime/host/behaviour'

export type ExecutorRequest =
  | { readonly kind: 'run'; readonly ask: ExecuteTool }
  /** To say what it offers and what it holds. */
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
