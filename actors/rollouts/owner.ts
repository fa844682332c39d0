/**
 * Owner of a partition: hosts coordinator and grouper on one feed, so that one process drives a group's rollouts and
 * selects or rejects the group.
 *
 * in   the facts of a partition        out  the decisions of both behaviours
 * Invariant: each of the two behaviours folds every fact (applies it to its state) and gets every input to decide
 * about.
 */
import type { Decision, Reactive } from '../../runtime/host/behaviour'
import type { CoordinatorState } from './coordinator'
import type { GrouperState } from './grouper'
import type { OwnerRequest } from './nextActions'

export interface OwnerState {
  readonly coordinator: CoordinatorState
  readonly grouper: GrouperState
}

type Decided = Decision & { readonly requests?: readonly OwnerRequest[] }

export function owner(
  coordinator: Reactive<CoordinatorState, never, OwnerRequest>,
  grouper: Reactive<GrouperState>,
): Reactive<OwnerState, never, OwnerRequest> {
  return {
    name: 'owner',
    initial: () => ({ coordinator: coordinator.initial(), grouper: grouper.initial() }),
    evolve(state, fact, origin) {
      const next = {
        coordinator: coordinator.evolve(state.coordinator, fact, origin),
        grouper: grouper.evolve(state.grouper, fact, origin),
      }
      return next.coordinator === state.coordinator && next.grouper === state.grouper ? state : next
    },
    asked: (state, highestOrder) => ({
      coordinator: coordinator.asked?.(state.coordinator, highestOrder) ?? state.coordinator,
      grouper: grouper.asked?.(state.grouper, highestOrder) ?? state.grouper,
    }),
    decide: (state, input, fx) =>
      both(coordinator.decide(state.coordinator, input, fx), grouper.decide(state.grouper, input, fx)),
    pending: (state, fx) => both(coordinator.pending(state.coordinator, fx), grouper.pending(state.grouper, fx)),
  }
}

/**
 * Returns the offset of the earliest record of any group that is open in either behaviour, where a refold (rebuilding
 * the state from the log) starts; undefined if no group is open.
 */
export function oldestOpen(state: OwnerState): number | undefined {
  const offsets = [...state.coordinator.groups.values(), ...state.grouper.groups.values()].map(g => g.firstOffset)
  return offsets.length === 0 ? undefined : Math.min(...offsets)
}

const both = (a: Decided, b: Decided): Decided => ({
  facts: [...a.facts, ...b.facts],
  commands: [...a.commands, ...b.commands],
  requests: [...(a.requests ?? []), ...(b.requests ?? [])],
})
