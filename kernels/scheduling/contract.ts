/**
 * Contract of a scheduler, between the kernel, the scheduler actor and the simulator.
 *
 * in   engines and turns, as events        out  decisions: turns to start, KV to evict, turns that fit no engine
 * Times are in ms of any one clock; lengths are in tokens.
 */
import type { EngineId, GroupId, TrajectoryId } from '../../messages/ids'
import type { GrowthOptions } from './groupLengths'
import type { EngineSpec, KvReport } from './kvAccount'
import type { Ledger, LedgerOptions } from './ledger'
import type { PolicyOptions } from './policy'

export type PolicyName = 'static' | 'static-async' | 'least-requests' | 'kv-headroom'

export interface SchedulerOptions extends Partial<PolicyOptions>, LedgerOptions, GrowthOptions {}

/** A request for one turn. */
export interface TurnAsk {
  readonly trajectory: TrajectoryId
  readonly group: GroupId
  /** 0-based. A scheduler that has just started takes a trajectory with a later turn as begun. */
  readonly turn: number
  readonly contextTokens: number
  readonly promptTokens: number
  readonly boundTokens: number
  readonly order: number
  /** Engine that holds the trajectory's KV, if known. Used unless the scheduler knows better. */
  readonly engine: EngineId | null
}

export interface TurnAssignment {
  readonly trajectory: TrajectoryId
  readonly engine: EngineId
  /** Start order, which becomes the request's priority. */
  readonly order: number
  /** Engine from which the trajectory has moved; null if it has not. */
  readonly movedFrom: EngineId | null
}

export interface SchedulerDecision {
  readonly assignments: readonly TurnAssignment[]
  /** KV to drop: trajectories that moved or were released. */
  readonly evictions: readonly { readonly trajectory: TrajectoryId; readonly engine: EngineId }[]
  /** Turns whose context no joined engine could take, even an empty one. They are no longer queued. */
  readonly unfit: readonly TrajectoryId[]
}

export interface Scheduler {
  readonly policy: PolicyName
  readonly ledger: Ledger
  /** Number of turns that wait, for their own engine or for any. */
  readonly waitingTurns: number
  engineJoined(spec: EngineSpec): void
  /** Returns the trajectories whose turn was running there; the caller must ask for these turns again. */
  engineLeft(engine: EngineId): readonly TrajectoryId[]
  engineStatus(status: KvReport & { readonly engine: EngineId }): void
  /** Requests a turn. A repeated request keeps its place in the queue; a request for a running turn means that its generation is lost. */
  turnAsked(ask: TurnAsk): void
  /** Records a turn found running after a restart. If its engine has not joined, the turn counts as asked. */
  turnRunning(ask: TurnAsk, engine: EngineId): void
  /** Records that a turn ended, completed or interrupted. @param contextTokens tokens of the context including the turn */
  turnEnded(trajectory: TrajectoryId, contextTokens: number, nowMs: number): void
  /** Records that a trajectory is over. @param counts its length says something about its group's lengths. Default true. */
  trajectoryReleased(trajectory: TrajectoryId, counts?: boolean): void
  decide(nowMs: number): SchedulerDecision
}
