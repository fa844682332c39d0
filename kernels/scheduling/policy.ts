/**
 * Defines a scheduling policy: a pure function from a view of engines and queues to the next step.
 *
 * in   a view        out  one step, or null if there is none
 * The scheduler carries a step out in its ledger and asks again until there is none, so a decision never uses stale sums.
 * Invariant: the same view gives the same step. A view is read-only, has no clock and no randomness, and lists engines in
 * the order in which they joined. A policy reads only the heads of queues, at most O(engines) per step.
 */
import type { EngineId, GroupId, TrajectoryId } from '../../messages/ids'
import type { EngineAccount } from './kvAccount'

/** A turn that waits for its generation. */
export interface WaitingTurn {
  readonly trajectory: TrajectoryId
  readonly group: GroupId
  /** Start order of the trajectory; a smaller one is older and goes first. */
  readonly order: number
  /** Tokens before the turn. */
  readonly contextTokens: number
  readonly promptTokens: number
  /** Longest context within the rollout's budget. */
  readonly boundTokens: number
  /** Engine on which the trajectory is placed; null if it is on none or its engine has left. */
  readonly engine: EngineId | null
  /** Engine before the pause, which may still hold the prefix. */
  readonly lastEngine: EngineId | null
  /** Time of the pause; null if the trajectory is not paused, or has lost its engine. */
  readonly pausedMs: number | null
  /** Wave of its engine that the turn belongs to, for policies with a barrier; else 0. */
  readonly wave: number
}

export interface EngineView extends EngineAccount {
  /** Oldest waiting turn that is placed here. */
  readonly head: WaitingTurn | undefined
  /** Trajectories placed here since the last engine joined, including those that are over. */
  readonly placed: number
  /** The wave that is running. */
  readonly wave: number
}

export interface PolicyOptions {
  /** A trajectory moves only if the other engine's load (demand / KV) is lower by this share of the own load (see kv-headroom). Default 0.2. */
  readonly repinMargin: number
  /** Largest expected demand, as a multiple of an engine's KV, with which a new trajectory may begin. Default 1.35. */
  readonly overcommit: number
  /**
   * Share of the KV that new trajectories may not use. The second one holds for engines on which priority does not choose
   * the victim of a preemption. Default 0.07 and 0.1.
   */
  readonly reserveShare: number
  readonly reserveShareWithoutPriority: number
}

export interface SchedulerView {
  readonly nowMs: number
  readonly options: PolicyOptions
  readonly engines: readonly EngineView[]
  /** First of the trajectories that have begun and have no engine, because it left or because they were paused. */
  readonly homeless: WaitingTurn | undefined
  /** First of the trajectories that have not begun, by the policy's start order. */
  readonly fresh: WaitingTurn | undefined
  /** Number of trajectories that have not begun. */
  readonly freshCount: number
  /** true: demand is the expected peak. false: demand is the sum of what each trajectory may grow to. */
  readonly forecasts: boolean
  /** Wait after which a trajectory goes ahead of all others. */
  readonly patienceMs: number
  /** Share of ended turns that were the last of their trajectory. 0 before any turn has ended. */
  readonly lastTurnShare: number
  /** Returns the demand of the trajectories placed on an engine, from now on. */
  demandTokens(engine: EngineView): number
  /** Returns the demand if the turn's trajectory were placed there as well. */
  demandTokensWith(engine: EngineView, turn: WaitingTurn): number
  /** Returns the tokens that are probably held now, plus the turn's context. */
  heldTokensWith(engine: EngineView, turn: WaitingTurn): number
}

/**
 * start: generate the turn on the engine, and move its trajectory there if it is placed elsewhere. place: let it wait
 * there. pause: take the trajectory off its engine; it continues wherever there is room.
 */
export type Step =
  | { readonly kind: 'start'; readonly turn: WaitingTurn; readonly engine: EngineId; readonly opensWave?: boolean }
  | { readonly kind: 'place'; readonly turn: WaitingTurn; readonly engine: EngineId }
  | { readonly kind: 'pause'; readonly turn: WaitingTurn }

/** oldest: by start order. longest: a few of each group, then members of the groups that seem to become longest. */
export type StartOrder = 'oldest' | 'longest'

export interface Policy {
  readonly name: string
  /** Turns run in waves: a turn that is asked for during a wave belongs to the next one. */
  readonly barrier: boolean
  /** Order in which trajectories begin. Default: oldest first. */
  readonly startOrder?: StartOrder
  next(view: SchedulerView): Step | null
}

/** Says whether the engine could take this turn if it were empty. At least one token must fit after the context. */
export function fits(engine: EngineAccount, turn: Pick<WaitingTurn, 'contextTokens'>): boolean {
  return turn.contextTokens < engine.spec.contextTokens && turn.contextTokens < roundedCapacity(engine)
}

/** Returns the engine's KV in tokens, rounded down to whole blocks. */
export const roundedCapacity = ({ spec }: EngineAccount): number =>
  Math.floor(spec.kvTokens / spec.blockTokens) * spec.blockTokens

export const hasSlot = (engine: EngineAccount): boolean => engine.running < engine.spec.maxSequences

/** Returns the engine with the smallest score among those that may take; among equals the one that joined first. */
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
