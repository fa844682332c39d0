/**
 * `kv-headroom`, the default: what all placed trajectories are expected to hold at once has to fit an engine's KV before
 * another begins there (after the paper's dynamic scheduler, arXiv 2508.20722 §3.2, for trajectories in place of requests).
 *
 * - A turn of a placed trajectory goes ahead of those that have not begun, on its engine, where its prefix is.
 * - Where it finds no KV it is paused: it gives up its place and goes on where there is room, those that have had least
 *   first. So all get on at about one speed, and the long ones, which nobody can tell beforehand, do not come last.
 * - Of those that have not begun, the groups that seem to become longest go first, after a few of each group.
 * - A trajectory moves between two turns only: when it was paused, or its engine's load is above another's by a margin.
 * - An engine on which nothing runs takes the first that waits, however large: nothing waits for ever, and no KV idles.
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

/** A turn that goes on may use this much of the reserve, so that the next to begin does not pause it at once. */
const reserveOfTurns = 0.5
/** Of the margin: engines with next to nothing on them are about equally fast. */
const leastMargin = 0.1
/**
 * Trajectories of one turn cannot be paused, but an engine that is full preempts the newest, which has little to lose:
 * where nearly all turns are the last of theirs, so much more is begun.
 */
const singleTurnOvercommit = 3
/** And so much before any has ended, where all would then be under way: a few that are left over come last. */
const lastOvercommit = 1.5

export const kvHeadroom: Policy = {
  name: 'kv-headroom',
  barrier: false,
  startOrder: 'longest',
  next(view) {
    for (const engine of view.engines) {
      if (engine.head === undefined) continue
      const step = goOn(view, engine, engine.head)
      if (step) return step
    }
    return begin(view)
  },
}

/** The next turn of a trajectory that is placed on `engine`. */
function goOn(view: SchedulerView, engine: EngineView, turn: WaitingTurn): Step | null {
  const load = loadOf(view, engine)
  const margin = marginOf(view, load)
  if (load >= margin) {
    const other = roomiest(view, turn, load - margin, load, 1)
    if (other) return { kind: 'start', turn, engine: other.spec.engine }
  }
  if (!hasSlot(engine)) return null
  const someoneWaits = view.fresh !== undefined || view.homeless !== undefined
  const reserve = someoneWaits ? reserveOfTurns * reserveOf(view, engine) : 0
  const held = view.heldTokensWith(engine, turn) + engine.foreignTokens
  if (engine.running === 0 || held <= roundedCapacity(engine) - reserve) {
    return { kind: 'start', turn, engine: engine.spec.engine }
  }
  // Where growth was reserved in full, those ahead of it will end before long.
  return view.forecasts ? { kind: 'pause', turn } : null
}

/** The first turn of a trajectory, or the next one of a trajectory that has no engine. */
function begin(view: SchedulerView): Step | null {
  const turn = nextToBegin(view)
  if (turn === undefined) return null
  const single = view.forecasts ? Math.max(0, 2 * view.lastTurnShare - 1) : 0
  const most = turn === view.fresh ? view.options.overcommit + singleTurnOvercommit * single : 1
  const anyLoad = Number.POSITIVE_INFINITY
  const engine =
    roomiest(view, turn, anyLoad, anyLoad, most) ?? view.engines.find(one => isIdle(view, one) && fits(one, turn))
  return engine ? { kind: 'start', turn, engine: engine.spec.engine } : null
}

/** Those that have lost their engine, then fresh ones, then paused ones; but a paused one that has waited too long goes ahead. */
function nextToBegin({ homeless, fresh, nowMs, patienceMs }: SchedulerView): WaitingTurn | undefined {
  if (homeless === undefined || fresh === undefined) return homeless ?? fresh
  const { pausedMs } = homeless
  return pausedMs === null || nowMs - pausedMs > patienceMs ? homeless : fresh
}

/**
 * Of the engines whose KV, times `most`, holds what all their trajectories and this one are expected to need, the one that
 * is least loaded with it: whose load is at most `maxLoad` without it and below `belowLoad` with it.
 */
function roomiest(
  view: SchedulerView,
  turn: WaitingTurn,
  maxLoad: number,
  belowLoad: number,
  most: number,
): EngineView | null {
  let best: EngineView | null = null
  let bestLoad = belowLoad
  const nothingIsKnown = turn === view.fresh && view.forecasts && view.lastTurnShare === 0
  const limit = nothingIsKnown ? Math.max(most, lastOvercommit) : most
  for (const engine of view.engines) {
    // A turn that waits here has begun: it goes ahead.
    if (engine.head !== undefined || !hasSlot(engine)) continue
    const { kvTokens } = engine.spec
    const room = roundedCapacity(engine) - reserveOf(view, engine)
    const taken = view.demandTokens(engine) + engine.foreignTokens
    if (taken > room * limit || taken > maxLoad * kvTokens || taken >= bestLoad * kvTokens) continue
    const tokens = view.demandTokensWith(engine, turn) + engine.foreignTokens
    if (tokens >= bestLoad * kvTokens || !fits(engine, turn)) continue
    if (tokens > room * most && !(nothingIsKnown && allMayBegin(view, taken, tokens - taken, room))) continue
    if (view.heldTokensWith(engine, turn) + engine.foreignTokens > room) continue
    best = engine
    bestLoad = tokens / kvTokens
  }
  return best
}

/** Whether an engine's share of all that have not begun may begin at once, if each adds so much to what is taken. */
const allMayBegin = (view: SchedulerView, taken: number, added: number, room: number): boolean =>
  taken + (added * view.freshCount) / view.engines.length <= room * lastOvercommit

/** With bounds nothing is ever preempted: what rests in a tool keeps its KV. */
const isIdle = ({ forecasts }: SchedulerView, { running, waiting, inTool }: EngineView): boolean =>
  running === 0 && waiting === 0 && (forecasts || inTool === 0)

const loadOf = (view: SchedulerView, engine: EngineView): number =>
  (view.demandTokens(engine) + engine.foreignTokens) / engine.spec.kvTokens

/**
 * How far below this load another engine's must be for a trajectory to move: a share of the KV where that is scarce, else of
 * the load itself, since a step takes the longer the more KV it reads, whatever is free.
 */
const marginOf = ({ options }: SchedulerView, load: number): number =>
  options.repinMargin * Math.min(1, Math.max(leastMargin, load))

/** Without priorities the engine's victim may be an old trajectory: stay further away from preemption. */
const reserveOf = (view: SchedulerView, engine: EngineView): number => {
  const { reserveShare, reserveShareWithoutPriority } = view.options
  return engine.spec.kvTokens * (engine.spec.prioritySign === 0 ? reserveShareWithoutPriority : reserveShare)
}
