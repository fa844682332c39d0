/** Tells decisions of a partition's owner from all other facts. */
import type { OwnerState } from '../../actors/rollouts/owner'
import type { TrajectoryFact } from '../../messages/facts'
import { groupOf, memberOf } from '../../messages/ids'

/**
 * True for facts that are decisions of a partition's owner; other facts are requests, answers, starts or claims. In a
 * rollout of an agent that calls the gateway, the gateway writes `turn.asked` and `rollout.finished`, so they are no
 * decisions, except the end of a rollout whose group was closed.
 */
export function isDecision(fact: TrajectoryFact, { coordinator }: OwnerState): boolean {
  if (fact.type === 'turn.asked' || fact.type === 'rollout.finished') {
    const rollout = coordinator.groups.get(groupOf(fact.trajectory))?.members.get(memberOf(fact.trajectory))
    if (rollout?.led !== undefined && !(fact.type === 'rollout.finished' && fact.reason === 'group-closed'))
      return false
  }
  switch (fact.type) {
    case 'turn.asked':
    case 'tool.asked':
    case 'rollout.finished':
    case 'group.closed':
    case 'group.selected':
    case 'group.rejected':
      return true
    case 'tool.completed':
      return fact.executor === null
    default:
      return false
  }
}
