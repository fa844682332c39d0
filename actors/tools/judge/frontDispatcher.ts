/**
 * Dispatcher of a judge's front: the dispatcher of tool calls, which also ends running calls that nobody waits for and
 * lets executors join only if their programs run in the same environment.
 *
 * in   the inputs of dispatcher.ts        out  the outputs of dispatcher.ts; tools.abort, executor.refused
 * Invariant: all executors that have calls have environments with the digest of the executor that joined first. When no
 * executor is left, the next one to join sets the digest.
 */
import type { Command, OfferSlots, SandboxOffer } from '../../../messages/commands'
import type { Reactive } from '../../../runtime/host/behaviour'
import { environmentChanges } from '../../../sandbox/environment'
import { type DispatcherOptions, type DispatcherState, dispatcher } from '../dispatcher'

export interface FrontState {
  readonly calls: DispatcherState
  /** Sandboxes of the executors, by the names that `calls.executors` has. */
  readonly sandboxes: Map<string, SandboxOffer>
}

type FrontInput = ReturnType<typeof dispatcher> extends Reactive<DispatcherState, infer I> ? I : never

export function frontDispatcher(options: DispatcherOptions = {}): Reactive<FrontState, FrontInput> {
  const inner = dispatcher(options)
  return {
    name: 'judge-front',
    initial: () => ({ calls: inner.initial(), sandboxes: new Map() }),
    evolve: state => state,
    decide(state, input, fx) {
      if (input.type === 'executor.slots') {
        const refusal = whyRefused(state, input)
        if (refusal !== undefined) {
          const { executor, incarnation } = input
          return { facts: [], commands: [{ type: 'executor.refused', executor, incarnation, reason: refusal }] }
        }
        state.sandboxes.set(`${input.executor} ${input.incarnation}`, input.sandbox!)
      }
      const aborts = input.type === 'tool.cancel' ? abortsOf(state.calls, `${input.trajectory}#`) : []
      const { facts, commands } = inner.decide(state.calls, input, fx)
      for (const name of state.sandboxes.keys()) if (!state.calls.executors.has(name)) state.sandboxes.delete(name)
      return { facts, commands: [...aborts, ...commands] }
    },
    settle: (state, fx) => inner.settle!(state.calls, fx),
    pending: (state, fx) => inner.pending(state.calls, fx),
  }
}

function whyRefused({ sandboxes }: FrontState, { sandbox, executor, incarnation }: OfferSlots): string | undefined {
  if (sandbox === undefined) return 'it offers no sandbox: join a judge with `troupe execute --join`'
  const others = [...sandboxes].filter(([name]) => name !== `${executor} ${incarnation}`)
  const first = others[0]?.[1]
  if (first === undefined) return undefined
  const changes = environmentChanges(first, sandbox)
  if (changes.length === 0) return undefined
  return `its code would run in another environment than that of the others: ${changes.join(', ')}`
}

/** Returns commands that end, at their executors, the assigned calls whose keys begin with `prefix`. */
function abortsOf({ executors }: DispatcherState, prefix: string): readonly Command[] {
  return [...executors.values()].flatMap(({ id, incarnation, leases }) => {
    const calls = [...leases.keys()].filter(key => key.startsWith(prefix))
    return calls.length === 0 ? [] : [{ type: 'tools.abort', executor: id, incarnation, calls } as const]
  })
}
