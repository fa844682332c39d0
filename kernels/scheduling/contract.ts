/**
 * Contract of a scheduler: the kernel (scheduler.ts) implements it, the scheduler actor and the simulator call it.
 *
 * in   engines and turns, as events        out  decisions: turns to start, KV to evict, turns that fit no engine
 * All times are in ms on one clock, whose origin does not matter; lengths are in tokens.
 */
import type { EngineId, GroupId, TrajectoryId } from '../../messages/ids'
import type { GrowthOptions } from './groupLengths'
import type { EngineSpec, KvReport } from './kvAccount'
import type { Ledger, LedgerOptions } from './ledger'
import type { PolicyOptions } from './policy'

export type PolicyName = 'static' | 'static-async' | 'least-requests' | 'kv-headroom'

export interface SchedulerOptions extends Partial<PolicyOptions>, LedgerOptions, GrowthOptions {}

/** Request to generate one turn of a trajectory. */
export interface TurnAsk {
  readonly trajectory: TrajectoryId
  readonly group: GroupId
  /**
   * 0-based number of the turn. A scheduler that does not know the trajectory counts it as begun if this is above 0, or
   * if the context is longer than the prompt.
   */
  readonly turn: number
  readonly contextTokens: number
  readonly promptTokens: number
  readonly boundTokens: number
  readonly order: number
  /**
   * Engine that holds the trajectory's KV cache; null if unknown. Read only when the scheduler does not know the
   * trajectory yet.
   */
  readonly engine: EngineId | null
}

export interface TurnAssignment {
  readonly trajectory: TrajectoryId
  readonly engine: EngineId
  /** Start order of the trajectory: the priority that the request has on the engine. */
  readonly order: number
  /** Engine of the trajectory's previous turn if it is not `engine`; null otherwise. */
  readonly movedFrom: EngineId | null
}

export interface SchedulerDecision {
  readonly assignments: readonly TurnAssignment[]
  /**
   * KV caches that engines can drop: those of trajectories that moved, were released or do not fit their engine any
   * more.
   */
  readonly evictions: readonly { readonly trajectory: TrajectoryId; readonly engine: EngineId }[]
  /**
   * Trajectories whose next turn has a context too long for any joined engine, even an empty one. Their turns are no
   * longer queued.
   */
  readonly unfit: readonly TrajectoryId[]
}

export interface Scheduler {
  readonly policy: PolicyName
  readonly ledger: Ledger
  /** Number of turns that wait to start, on their own engine or on any. */
  readonly waitingTurns: number
  engineJoined(spec: EngineSpec): void
  /**
   * Removes an engine. Returns the trajectories whose turn was running on it; the caller must request these turns
   * again. Turns that waited on the engine stay queued, for any engine.
   */
  engineLeft(engine: EngineId): readonly TrajectoryId[]
  engineStatus(status: KvReport & { readonly engine: EngineId }): void
  /**
   * Requests a turn. A repeated request keeps its place in the queue. A request for a turn that is running means that
   * its generation was lost, so the turn is queued again.
   */
  turnAsked(ask: TurnAsk): void
  /**
   * Records a turn found running after a restart of the scheduler. If its engine has not joined, the turn is queued.
   */
  turnRunning(ask: TurnAsk, engine: EngineId): void
  /** Records that a turn was completed or interrupted. @param contextTokens tokens of the context including the turn */
  turnEnded(trajectory: TrajectoryId, contextTokens: number, nowMs: number): void
  /**
   * Records that a trajectory is over. @param counts true (default) if its length is evidence of its group's lengths
   */
  trajectoryReleased(trajectory: TrajectoryId, counts?: boolean): void
  decide(nowMs: number): SchedulerDecision
}
