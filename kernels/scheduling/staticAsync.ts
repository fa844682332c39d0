/**
 * Policy `static-async`: equal shares as in `static`, but without its barrier: a turn waits only for its own tool and
 * until its engine runs fewer than `maxSequences` turns.
 *
 * Comparing it with `static` shows how much of a scheduler's gain comes only from asynchronous tools.
 */
import { hasSlot, type Policy, type SchedulerView, type Step } from './policy'
import { placeEqually } from './static'

/** Starts the oldest waiting turn of the first engine that has one and runs fewer than `maxSequences` turns. */
export function startPlaced(view: SchedulerView): Step | null {
  for (const engine of view.engines) {
    if (engine.head !== undefined && hasSlot(engine)) {
      return { kind: 'start', turn: engine.head, engine: engine.spec.engine }
    }
  }
  return null
}

export const staticAsync: Policy = {
  name: 'static-async',
  barrier: false,
  next: view => placeEqually(view) ?? startPlaced(view),
}
