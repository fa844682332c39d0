/**
 * What a scheduler is told and what it decides: the contract between the kernel, the scheduler actor and the simulator.
 * Times are ms of any one clock, lengths are tokens.
 */
import type { EngineId, GroupId, TrajectoryId } from '../../messages/ids'
import type { GrowthOptions } from './groupLengths'
import type { EngineSpec, KvReport, Ledger, LedgerOptions } from './ledger'
import type { PolicyOptions } from './policy'

export type PolicyName = 'static' | 'static-async' | 'least-requests' | 'kv-headroom'

export interface SchedulerOptions extends Partial<PolicyOptions>, LedgerOptions, GrowthOptions {}

/** A turn that is asked for. */
export interface TurnAsk {
  readonly trajectory: TrajectoryId
  readonly group: GroupId
  /** 0-based: a scheduler that has just started takes a later turn for one of a trajectory that has begun. */
  readonly turn: number
  readonly contextTokens: number
  readonly promptTokens: number
  readonly boundTokens: number
  readonly order: number
  /** The engine that holds its KV, if one is known: believed when the scheduler does not know better. */
  readonly engine: EngineId | null
}

export interface TurnAssignment {
  readonly trajectory: TrajectoryId
  readonly engine: EngineId
  /** Start order: the request's priority. */
  readonly order: number
  /** The trajectory was on this engine before and has moved. */
  readonly movedFrom: EngineId | null
}

export interface SchedulerDecision {
  readonly assignments: readonly TurnAssignment[]
  /** KV to drop: of trajectories that moved or were released. */
  readonly evictions: readonly { readonly trajectory: TrajectoryId; readonly engine: EngineId }[]
  /** Turns whose context no engine that is here could take, even empty. They are no longer queued. */
  readonly unfit: readonly TrajectoryId[]
}

export interface Scheduler {
  readonly policy: PolicyName
  readonly ledger: Ledger
  /** Turns that wait, for an engine of theirs or any. */
  readonly waitingTurns: number
  engineJoined(spec: EngineSpec): void
  /** Returns the trajectories whose turn was running there: those are to be asked again. */
  engineLeft(engine: EngineId): readonly TrajectoryId[]
  engineStatus(status: KvReport & { readonly engine: EngineId }): void
  /** Asked again, a turn keeps its place; asked while it runs, its generation is taken for lost. */
  turnAsked(ask: TurnAsk): void
  /** A turn that runs already, found after a restart. Its engine must have joined, else it is taken as asked. */
  turnRunning(ask: TurnAsk, engine: EngineId): void
  /** The turn ended, completed or interrupted, with `contextTokens` before and in it. */
  turnEnded(trajectory: TrajectoryId, contextTokens: number, nowMs: number): void
  /** The trajectory is over. `counts`: its length says something about its group's. Default true. */
  trajectoryReleased(trajectory: TrajectoryId, counts?: boolean): void
  decide(nowMs: number): SchedulerDecision
}
