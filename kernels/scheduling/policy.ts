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
  /** An engine is out by a margin when its load, a share of its KV, is this much above another's. Default 0.3. */
  readonly repinMargin: number
  /** Share of the KV kept free of new trajectories: where priority chooses the victim of a preemption, and elsewhere. */
  readonly reserveShare: number
  readonly reserveShareWithoutPriority: number
}

export interface SchedulerView {
  readonly nowMs: number
  readonly options: PolicyOptions
  readonly engines: readonly EngineView[]
  /** Oldest turn of a trajectory that had begun and whose engine has left: goes ahead of `fresh`. */
  readonly homeless: WaitingTurn | undefined
  /** Oldest trajectory that has not begun. */
  readonly fresh: WaitingTurn | undefined
  /** What the turn's trajectory is expected to need in all, tokens. */
  needTokens(turn: WaitingTurn): number
  committedTokens(engine: EngineView): number
  /** What placing the turn's trajectory would add to that. */
  addedTokens(engine: EngineView, turn: WaitingTurn, needTokens: number): number
  /** What starting a turn that is placed here would add to the engine's referenced tokens. */
  startTokens(turn: WaitingTurn): number
}

/** start: generate the turn there, moving its trajectory where it is placed elsewhere. place: it will wait there. */
export type Step =
  | { readonly kind: 'start'; readonly turn: WaitingTurn; readonly engine: EngineId; readonly opensWave?: boolean }
  | { readonly kind: 'place'; readonly turn: WaitingTurn; readonly engine: EngineId }

export interface Policy {
  readonly name: string
  /** Turns are stamped with waves: a turn that is asked while a wave is under way belongs to the next one. */
  readonly barrier: boolean
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
