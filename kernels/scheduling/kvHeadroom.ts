/**
 * `kv-headroom`, the default: a trajectory begins where what all placed trajectories may grow to leaves room for what it
 * may grow to (the paper's dynamic scheduler, arXiv 2508.20722 §3.2, for trajectories in place of requests).
 *
 * - A turn of a trajectory that has begun goes ahead of those that have not, on its engine, where its prefix is.
 * - It moves only here, between two turns, and only away from an engine whose load is above another's by a margin.
 * - An engine with nothing on it takes the oldest that waits, however large: nothing waits for ever.
 * - The oldest goes first; none overtakes it, so that a large one is not starved by small ones.
 */
import {
  type EngineView,
  fits,
  hasSlot,
  type Policy,
  roundedCapacity,
  type SchedulerView,
  type Step,
  type WaitingTurn,
} from './policy'

export const kvHeadroom: Policy = {
  name: 'kv-headroom',
  barrier: false,
  next(view) {
    for (const engine of view.engines) {
      if (engine.head === undefined) continue
      const step = goOn(view, engine, engine.head)
      if (step) return step
    }
    const turn = view.homeless ?? view.fresh
    return turn === undefined ? null : begin(view, turn)
  },
}

/** The next turn of a trajectory that is placed on `engine`. */
function goOn(view: SchedulerView, engine: EngineView, turn: WaitingTurn): Step | null {
  const load = loadOf(view, engine)
  if (load >= view.options.repinMargin) {
    const other = roomiest(view, turn, view.needTokens(turn), load - view.options.repinMargin, load)
    if (other) return { kind: 'start', turn, engine: other.spec.engine }
  }
  if (!hasSlot(engine)) return null
  // Its growth was reserved when it began. Where guesses were too small, wait for others rather than preempt them.
  const referenced = engine.referencedTokens + engine.foreignTokens + view.startTokens(turn) + engine.spec.blockTokens
  const goes = engine.running === 0 || referenced <= roundedCapacity(engine)
  return goes ? { kind: 'start', turn, engine: engine.spec.engine } : null
}

/** The first turn of a trajectory, or the next one of a trajectory that has lost its engine. */
function begin(view: SchedulerView, turn: WaitingTurn): Step | null {
  const engine =
    roomiest(view, turn, view.needTokens(turn), Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY) ??
    view.engines.find(one => isEmpty(one) && fits(one, turn))
  return engine ? { kind: 'start', turn, engine: engine.spec.engine } : null
}

/**
 * Of the engines with room for all that the trajectory may need, the one that is least loaded with it: whose load is at
 * most `maxLoad` without it and below `belowLoad` with it.
 */
function roomiest(
  view: SchedulerView,
  turn: WaitingTurn,
  need: number,
  maxLoad: number,
  belowLoad: number,
): EngineView | null {
  let best: EngineView | null = null
  let bestLoad = belowLoad
  for (const engine of view.engines) {
    // A turn that waits here has begun: it goes ahead.
    if (engine.head !== undefined || !hasSlot(engine)) continue
    const { kvTokens } = engine.spec
    const room = roundedCapacity(engine) - reserveOf(view, engine)
    const taken = view.committedTokens(engine) + engine.foreignTokens
    if (taken > room || taken > maxLoad * kvTokens || taken >= bestLoad * kvTokens) continue
    const tokens = taken + view.addedTokens(engine, turn, need)
    if (tokens > room || tokens >= bestLoad * kvTokens || !fits(engine, turn)) continue
    best = engine
    bestLoad = tokens / kvTokens
  }
  return best
}

const isEmpty = (engine: EngineView): boolean => engine.running === 0 && engine.waiting === 0 && engine.inTool === 0

const loadOf = (view: SchedulerView, engine: EngineView): number =>
  (view.committedTokens(engine) + engine.foreignTokens) / engine.spec.kvTokens

/** Without priorities the engine's victim may be an old trajectory: stay further away from preemption. */
const reserveOf = (view: SchedulerView, engine: EngineView): number => {
  const { reserveShare, reserveShareWithoutPriority } = view.options
  return engine.spec.kvTokens * (engine.spec.prioritySign === 0 ? reserveShareWithoutPriority : reserveShare)
}
