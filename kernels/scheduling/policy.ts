/**
 * What a scheduling policy sees and says. A policy is one pure function from a view to its next step; the scheduler
 * carries the step out in its ledger and asks again until there is none, so that a decision never works on stale sums.
 *
 * Invariant: a view is read-only, holds neither clock nor randomness, and its engines stand in the order in which they
 * joined: the same view gives the same step. A policy looks at the heads of queues only, at most O(engines) a step.
 */
import type { EngineId, GroupId, TrajectoryId } from '../../messages/ids'
import type { EngineAccount } from './ledger'

/** A turn that waits to be generated. */
export interface WaitingTurn {
  readonly trajectory: TrajectoryId
  readonly group: GroupId
  /** Start order of the trajectory; smaller is older and goes first. */
  readonly order: number
  /** Everything before the turn. */
  readonly contextTokens: number
  readonly promptTokens: number
  /** What the context may grow to before the rollout is out of budget. */
  readonly boundTokens: number
  /** Where the trajectory is placed; null for one that is not, or whose engine has left. */
  readonly engine: EngineId | null
  /** Where it was before it was paused, and may have left its prefix. */
  readonly lastEngine: EngineId | null
  /** Since when it is paused; null for one that is not, or that has lost its engine. */
  readonly pausedMs: number | null
  /** The wave of its engine that it belongs to (policies with a barrier), else 0. */
  readonly wave: number
}

export interface EngineView extends EngineAccount {
  /** Oldest turn among those placed here that wait. */
  readonly head: WaitingTurn | undefined
  /** Trajectories placed here since the last engine joined, whether they still live or not. */
  readonly placed: number
  /** The wave that is under way. */
  readonly wave: number
}

export interface PolicyOptions {
  /** A trajectory moves to an engine whose load, a share of its KV, is less by this share of the own one, or of the KV. Default 0.2. */
  readonly repinMargin: number
  /** How many times its KV what an engine's trajectories are expected to need may be when one begins. Default 1.35. */
  readonly overcommit: number
  /**
   * Share of the KV kept free of new trajectories: where priority chooses the victim of a preemption, and elsewhere.
   * Default 0.07 and 0.1.
   */
  readonly reserveShare: number
  readonly reserveShareWithoutPriority: number
}

export interface SchedulerView {
  readonly nowMs: number
  readonly options: PolicyOptions
  readonly engines: readonly EngineView[]
  /** First of the trajectories that had begun and have no engine: it has left, or they were paused. */
  readonly homeless: WaitingTurn | undefined
  /** Of the trajectories that have not begun, the one that the policy's start order names. */
  readonly fresh: WaitingTurn | undefined
  /** Trajectories that have not begun. */
  readonly freshCount: number
  /** Demand is what is expected to be held at once; otherwise it is the sum of what each trajectory may grow to. */
  readonly forecasts: boolean
  /** Whoever has waited longer goes ahead of all. */
  readonly patienceMs: number
  /** Of the turns that have ended, the share that was the last of its trajectory. 0 before any has. */
  readonly lastTurnShare: number
  /** The most that the trajectories placed here are expected to hold at once, from now on. */
  demandTokens(engine: EngineView): number
  /** That, were the turn's trajectory placed here too. */
  demandTokensWith(engine: EngineView, turn: WaitingTurn): number
  /** What they are thought to hold now, with the turn's context. */
  heldTokensWith(engine: EngineView, turn: WaitingTurn): number
}

/**
 * start: generate the turn there, moving its trajectory where it is placed elsewhere. place: it will wait there. pause: it
 * gives up its place, and will go on where there is room.
 */
export type Step =
  | { readonly kind: 'start'; readonly turn: WaitingTurn; readonly engine: EngineId; readonly opensWave?: boolean }
  | { readonly kind: 'place'; readonly turn: WaitingTurn; readonly engine: EngineId }
  | { readonly kind: 'pause'; readonly turn: WaitingTurn }

/** oldest: in start order. longest: a few of each group, then those of groups that seem to become longest. */
export type StartOrder = 'oldest' | 'longest'

export interface Policy {
  readonly name: string
  /** Turns are stamped with waves: a turn that is asked while a wave is under way belongs to the next one. */
  readonly barrier: boolean
  /** In which order trajectories begin. Default: oldest first. */
  readonly startOrder?: StartOrder
  next(view: SchedulerView): Step | null
}

/** Whether an engine could take this turn at all, were it empty: one token must fit behind the context. */
export function fits(engine: EngineAccount, turn: Pick<WaitingTurn, 'contextTokens'>): boolean {
  return turn.contextTokens < engine.spec.contextTokens && turn.contextTokens < roundedCapacity(engine)
}

/** The engine's KV in whole blocks, tokens. */
export const roundedCapacity = ({ spec }: EngineAccount): number =>
  Math.floor(spec.kvTokens / spec.blockTokens) * spec.blockTokens

export const hasSlot = (engine: EngineAccount): boolean => engine.running < engine.spec.maxSequences

/** The engine with the smallest score among those that are let in; the one that joined first among equals. */
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
