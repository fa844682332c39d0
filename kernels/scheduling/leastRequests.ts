/**
 * Policy `least-requests`: places a trajectory on the engine with the fewest running and waiting turns, where it stays
 * until it ends, the engine leaves, or its context no longer fits the engine.
 *
 * verl's server manager routes like this (as of 2026). The policy ignores how much KV is in use, and never rebalances.
 */
import { fits, least, type Policy } from './policy'
import { startPlaced } from './staticAsync'

export const leastRequests: Policy = {
  name: 'least-requests',
  barrier: false,
  next(view) {
    const turn = view.homeless ?? view.fresh
    if (turn !== undefined) {
      const engine = least(
        view.engines,
        one => one.running + one.waiting,
        one => fits(one, turn),
      )
      if (engine) return { kind: 'place', turn, engine: engine.spec.engine }
    }
    return startPlaced(view)
  },
}
