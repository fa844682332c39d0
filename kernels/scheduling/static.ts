/**
 * Policy `static`: the paper's baseline (arXiv 2508.20722 §3.2). Every engine gets and keeps an equal share of
 * trajectories.
 *
 * Turns run in waves, on each engine by itself: a wave starts when all turns of the engine's previous wave have ended
 * and their tools have answered. The policy ignores how much KV is in use: an engine preempts the sequences that do not
 * fit.
 */
import { type EngineView, fits, hasSlot, least, type Policy, type SchedulerView, type Step } from './policy'

/**
 * Places the next turn that has no engine on the engine with the fewest placements among those it fits. Shares become
 * equal in the long run.
 */
export function placeEqually(view: SchedulerView): Step | null {
  const turn = view.homeless ?? view.fresh
  if (turn === undefined) return null
  const engine = least(
    view.engines,
    one => one.placed,
    one => fits(one, turn),
  )
  return engine && { kind: 'place', turn, engine: engine.spec.engine }
}

function nextOfWave(engine: EngineView): Step | null {
  const turn = engine.head
  if (turn === undefined || !hasSlot(engine)) return null
  if (turn.wave <= engine.wave) return { kind: 'start', turn, engine: engine.spec.engine }
  const over = engine.running === 0 && engine.inTool === 0
  return over ? { kind: 'start', turn, engine: engine.spec.engine, opensWave: true } : null
}

export const staticPolicy: Policy = {
  name: 'static',
  barrier: true,
  next(view) {
    const placed = placeEqually(view)
    if (placed) return placed
    for (const engine of view.engines) {
      const step = nextOfWave(engine)
      if (step) return step
    }
    return null
  },
}
