/**
 * `least-requests`: a trajectory goes to the engine with the fewest requests in flight and stays there for ever, as verl
 * routes (its server manager, read 2026). Knows nothing of KV, never rebalances.
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
