/**
 * Defines a scheduling policy: a pure function from a view of engines and queues to the next step.
 *
 * in   a view        out  one step, or null if there is none
 * The scheduler carries out a step in its ledger and asks the policy again until it returns null, so a decision never
 * uses stale sums.
 * Invariant: the same view gives the same step. A view is read-only, reads no clock (`nowMs` is fixed), has no
 * randomness, and lists engines in the order in which they joined. A policy reads only the heads of queues, at most
 * O(engines) per step.
 */
import type { EngineId, GroupId, TrajectoryId } from '../../messages/ids'
import type { EngineAccount } from './kvAccount'

/** A turn that waits to be generated. */
export interface WaitingTurn {
  readonly trajectory: TrajectoryId
  readonly group: GroupId
  /** Start order of the trajectory; a smaller one is older and goes first. */
  readonly order: number
  /** Number of tokens in the context before the turn. */
  readonly contextTokens: number
  readonly promptTokens: number
  /** Longest context that the rollout's budget allows, in tokens. */
  readonly boundTokens: number
  /**
   * Engine on which the trajectory is placed; null if there is none, since the trajectory has not begun or was paused,
   * or its engine left or became too small for it.
   */
  readonly engine: EngineId | null
  /**
   * Engine on which the trajectory was before its pause, and which may still hold its prefix; null if there is none.
   */
  readonly lastEngine: EngineId | null
  /** Time at which the trajectory was paused, ms; null if it is not paused (one that lost its engine is not). */
  readonly pausedMs: number | null
  /** Time at which the trajectory's first turn started, ms; null if it has not begun. */
  readonly begunMs: number | null
  /**
   * Number of the wave on its engine that the turn belongs to (a wave starts when the previous one has ended); 0 for
   * policies without waves.
   */
  readonly wave: number
}

export interface EngineView extends EngineAccount {
  /** Oldest turn that waits to start on this engine. */
  readonly head: WaitingTurn | undefined
  /**
   * Number of placements on this engine since an engine last joined the fleet, those of ended trajectories included.
   */
  readonly placed: number
  /** Number of the wave that runs on this engine; 0 for policies without waves. */
  readonly wave: number
}

export interface PolicyOptions {
  /**
   * To balance load, a trajectory moves to another engine only if that engine's load (demand / KV) is lower by at least
   * this share of its own engine's load (see kv-headroom). Default 0.2.
   */
  readonly repinMargin: number
  /**
   * Upper bound on the expected demand with which a new trajectory may begin, as a multiple of an engine's KV without
   * the reserve. Default 1.35; 1 if demand is not forecast. kv-headroom allows more while more than half of the turns
   * are the last of their trajectory, and before any trajectory has ended.
   */
  readonly overcommit: number
  /**
   * Share of an engine's KV (the reserve) that stays free when a trajectory begins on the engine, continues there after
   * a pause, or moves there. Default 0.07; 0 if demand is not forecast.
   */
  readonly reserveShare: number
  /** Used instead of `reserveShare` on engines where priority does not choose the preemption's victim. Default 0.1. */
  readonly reserveShareWithoutPriority: number
}

export interface SchedulerView {
  readonly nowMs: number
  readonly options: PolicyOptions
  readonly engines: readonly EngineView[]
  /**
   * Next trajectory among those that have begun and are on no engine, because their engine left or became too small for
   * them, or because they were paused.
   */
  readonly homeless: WaitingTurn | undefined
  /** Next trajectory among those that have not begun, by the policy's start order. */
  readonly fresh: WaitingTurn | undefined
  /** Number of trajectories that have not begun. */
  readonly freshCount: number
  /** Number of trajectories that have begun and are on no engine. */
  readonly homelessCount: number
  /** true: demand is the expected peak of held KV. false: it is the sum of the lengths that trajectories may reach. */
  readonly forecasts: boolean
  /** Age, in ms since the start of its first turn, above which a paused trajectory goes ahead of all others. */
  readonly patienceMs: number
  /**
   * Number of begun trajectories that ended without failing, divided by the number of turns that ended; 0 before any
   * turn has ended.
   */
  readonly lastTurnShare: number
  /** Returns the demand of the trajectories that are placed on an engine, in KV tokens; see `forecasts`. */
  demandTokens(engine: EngineView): number
  /** Returns `demandTokens` if the turn's trajectory were placed on the engine as well. */
  demandTokensWith(engine: EngineView, turn: WaitingTurn): number
  /** Returns the tokens that the engine's trajectories probably hold now, plus the turn's context. */
  heldTokensWith(engine: EngineView, turn: WaitingTurn): number
}

/**
 * Step of a policy. start: generate the turn on the engine, and move its trajectory there if it is placed elsewhere.
 * place: queue the turn on the engine. pause: take the trajectory off its engine; it continues wherever there is room.
 */
export type Step =
  | { readonly kind: 'start'; readonly turn: WaitingTurn; readonly engine: EngineId; readonly opensWave?: boolean }
  | { readonly kind: 'place'; readonly turn: WaitingTurn; readonly engine: EngineId }
  | { readonly kind: 'pause'; readonly turn: WaitingTurn }

/**
 * Order in which trajectories begin. oldest: by start order. longest: a few of each group, then members of the groups
 * that seem to become longest.
 */
export type StartOrder = 'oldest' | 'longest'

export interface Policy {
  readonly name: string
  /** true: turns run in waves, and a turn that is requested during a wave belongs to the next one. */
  readonly barrier: boolean
  /** Order in which trajectories begin. Default: oldest first. */
  readonly startOrder?: StartOrder
  next(view: SchedulerView): Step | null
}

/** Returns true if the engine could take this turn if it were empty. At least one token must fit after the context. */
export function fits(engine: EngineAccount, turn: Pick<WaitingTurn, 'contextTokens'>): boolean {
  return turn.contextTokens < engine.spec.contextTokens && turn.contextTokens < roundedCapacity(engine)
}

/** Returns the engine's KV in tokens, rounded down to whole blocks. */
export const roundedCapacity = ({ spec }: EngineAccount): number =>
  Math.floor(spec.kvTokens / spec.blockTokens) * spec.blockTokens

export const hasSlot = (engine: EngineAccount): boolean => engine.running < engine.spec.maxSequences

/**
 * Returns the engine with the smallest score among those for which `mayTake` is true; null if there is none. Of engines
 * with equal scores, the one that joined first is returned.
 */
export function least(
  engines: readonly EngineView[],
  scoreOf: (engine: EngineView) => number,
  mayTake: (engine: EngineView) => boolean,
): EngineView | null {
  let best: EngineView | null = null
  let bestScore = Number.POSITIVE_INFINITY
  for (const engine of engines) {
    if (!mayTake(engine)) continue
    const score = scoreOf(engine)
    if (score < bestScore || best === null) {
      best = engine
      bestScore = score
    }
  }
  return best
}
