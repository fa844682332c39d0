/**
 * Policy `kv-headroom`, the default: a trajectory begins on an engine only if the expected peak of all the engine's
 * trajectories fits its KV, times an overcommit (after the paper's dynamic scheduler, arXiv 2508.20722 §3.2, but for
 * trajectories instead of requests). An idle engine begins any trajectory that fits it alone.
 *
 * - The next turn of a placed trajectory goes ahead of trajectories that have not begun, on its engine, which has its
 *   prefix.
 * - If there is no KV for that turn, its trajectory is paused: it leaves its engine and continues where there is room,
 *   the trajectories with the fewest tokens first. So all progress at a similar speed, and long trajectories, which
 *   cannot be predicted, do not come last. If demand is not forecast (option `quantile`), the turn waits instead.
 * - No trajectory begins while more are paused than are on engines, so a trajectory's time from its first turn to
 *   its end depends on the engines and not on how many trajectories wait to begin.
 * - Among trajectories that have not begun, a few of each group go first, then the groups that seem to become longest.
 * - A trajectory moves only between two turns: after a pause, after its engine left or became too small for it, or if
 *   its engine's load is above another's by a margin.
 * - An engine without a running turn starts the first turn that waits on it, of whatever size, so no turn starves.
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

/**
 * Share of the KV reserve that continuing turns leave free while other trajectories wait to begin or to continue.
 * Continuing turns may use the rest of it, so that they are not paused as soon as another trajectory begins.
 */
const reserveOfTurns = 0.5
/** Lower bound on the load that the margin for a move is computed from: almost empty engines are about equally fast. */
const leastMargin = 0.1
/**
 * Overcommit added if every turn is the last of its trajectory; less is added, in proportion, if more than half of the
 * turns are. Such trajectories cannot be paused, but a full engine preempts the newest one, which has little computed
 * work to lose.
 */
const singleTurnOvercommit = 3
/**
 * Least overcommit before any trajectory has ended, used if with it all trajectories that have not begun can begin. With
 * less, a few of them would run last and alone.
 */
const lastOvercommit = 1.5

export const kvHeadroom: Policy = {
  name: 'kv-headroom',
  barrier: false,
  startOrder: 'longest',
  next(view) {
    for (const engine of view.engines) {
      if (engine.head === undefined) continue
      const step = continueTurn(view, engine, engine.head)
      if (step) return step
    }
    return begin(view)
  },
}

/** Decides on the next turn of a trajectory that is placed on `engine`. */
function continueTurn(view: SchedulerView, engine: EngineView, turn: WaitingTurn): Step | null {
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
  // Without forecasts, the account reserved KV for the trajectory's full expected length, so the turn can wait here:
  // turns ahead of it will end before long.
  return view.forecasts ? { kind: 'pause', turn } : null
}

/** Decides on the first turn of a trajectory, or the next turn of a trajectory without an engine. */
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

/**
 * Chooses the trajectory to begin or continue. `homeless`, the first one without an engine, goes ahead of `fresh` if it
 * lost its engine, if it began more than `patienceMs` ago, or if more trajectories are without an engine than are on
 * engines. Otherwise `fresh`, the first one that has not begun, goes ahead.
 */
function nextToBegin({ homeless, fresh, nowMs, patienceMs, homelessCount, engines }: SchedulerView) {
  if (homeless === undefined || fresh === undefined) return homeless ?? fresh
  const { pausedMs, begunMs } = homeless
  if (pausedMs === null || nowMs - (begunMs ?? pausedMs) > patienceMs) return homeless
  const placed = engines.reduce((sum, { running, waiting, inTool }) => sum + running + waiting + inTool, 0)
  return homelessCount > placed ? homeless : fresh
}

/**
 * Returns the engine with the lowest load after the turn's trajectory is added; null if no engine has room.
 *
 * An engine has room if it runs fewer than `maxSequences` turns and no turn waits on it, the turn fits it, its demand
 * with the trajectory is at most `most` times its KV without the reserve, its held tokens with the turn fit its KV
 * without the reserve, its load without the trajectory is at most `maxLoad`, and its load with it is below `belowLoad`.
 * Before any trajectory has ended, `allMayBegin` may allow a trajectory that begins more demand.
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
    // The turn that waits on this engine belongs to a trajectory that has begun, so it goes ahead.
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

/**
 * Returns true if an engine can begin its equal share of all trajectories that have not begun: `taken` plus `added`
 * tokens for each of them is at most `lastOvercommit` times `room`.
 */
const allMayBegin = (view: SchedulerView, taken: number, added: number, room: number): boolean =>
  taken + (added * view.freshCount) / view.engines.length <= room * lastOvercommit

/**
 * Returns true if no turn runs or waits on an engine. Without forecasts, there must also be no trajectory in a tool,
 * since that keeps its KV.
 */
const isIdle = ({ forecasts }: SchedulerView, { running, waiting, inTool }: EngineView): boolean =>
  running === 0 && waiting === 0 && (forecasts || inTool === 0)

const loadOf = (view: SchedulerView, engine: EngineView): number =>
  (view.demandTokens(engine) + engine.foreignTokens) / engine.spec.kvTokens

/**
 * Returns by how much another engine's load must be below `load` for a trajectory to move there: `repinMargin` times
 * the load, which counts as `leastMargin` at least and as 1 (a full KV) at most. The margin grows with the load, since
 * an engine's step takes longer the more KV it reads, however much KV is free.
 */
const marginOf = ({ options }: SchedulerView, load: number): number =>
  options.repinMargin * Math.min(1, Math.max(leastMargin, load))

/**
 * Returns the KV tokens to keep free. Without priorities a preemption may hit an old trajectory, so the reserve is
 * larger.
 */
const reserveOf = (view: SchedulerView, engine: EngineView): number => {
  const { reserveShare, reserveShareWithoutPriority } = view.options
  return engine.spec.kvTokens * (engine.spec.prioritySign === 0 ? reserveShareWithoutPriority : reserveShare)
}
