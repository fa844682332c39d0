/**
 * `static`: the paper's baseline (arXiv 2508.20722 §3.2). Every engine gets an equal share of the trajectories and keeps
 * it; its turns run in waves: the next wave starts when all of the last one have ended and their tools have answered.
 * Knows nothing of KV: what does not fit is preempted by the engine.
 */
import { type EngineView, fits, hasSlot, least, type Policy, type SchedulerView, type Step } from './policy'

/** Puts the oldest turn without a place on the engine that was given the fewest, in the long run equal shares. */
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
