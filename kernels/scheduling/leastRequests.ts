/**
 * Policy `least-requests`: places a trajectory on the engine with the fewest requests in flight, where it stays until
 * it ends or the engine leaves.
 *
 * verl's server manager routes like this (as of 2026). The policy ignores KV and never rebalances.
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
