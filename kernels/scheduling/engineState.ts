/**
 * Records of the scheduler: a member for each trajectory, a state for each engine, and the engine's view for policies.
 * Invariant: a member is in at most one queue, and its phase tells which one.
 */
import type { EngineId } from '../../messages/ids'
import type { Forecast } from './forecast'
import type { Heap, HeapItem } from './heap'
import type { EngineAccount } from './kvAccount'
import type { EngineView, WaitingTurn } from './policy'

/**
 * Phase of a trajectory. fresh: has not begun. homeless: has begun and is on no engine. placed: waits for its next turn
 * on its engine. running: generates. tool: between two turns. lost: its engine left while it was running or in a tool,
 * or no engine can take it; it is in no queue until its next turn is requested.
 */
export type Phase = 'fresh' | 'homeless' | 'placed' | 'running' | 'tool' | 'lost'

export interface Member extends HeapItem, WaitingTurn {
  contextTokens: number
  boundTokens: number
  order: number
  engine: EngineId | null
  lastEngine: EngineId | null
  pausedMs: number | null
  wave: number
  /** Sort key within the member's queue, smaller first; compared before the start order. */
  rank: number
  phase: Phase
  /**
   * Time at which the latest turn started or ended, ms: since then the trajectory has been generating or in its tool.
   */
  sinceMs: number
  /** Time at which the trajectory's first turn began, ms; null before. */
  begunMs: number | null
}

/** Orders members by wave, rank, start order, and trajectory id. */
export const oldestFirst = (a: Member, b: Member): number =>
  a.wave - b.wave || a.rank - b.rank || a.order - b.order || (a.trajectory < b.trajectory ? -1 : 1)

export interface EngineState {
  /** Turns that wait to start on this engine. */
  readonly queue: Heap<Member>
  readonly forecast: Forecast<Member>
  /** Number of placements of trajectories on this engine since an engine last joined the fleet. */
  placed: number
  /** Number of the wave that runs on this engine; 0 for policies without waves. */
  wave: number
}

/** View of one engine for a policy: reads the ledger's account and the engine's state, and copies neither. */
export class StateView implements EngineView {
  constructor(
    readonly account: EngineAccount,
    readonly state: EngineState,
  ) {}
  get spec() {
    return this.account.spec
  }
  get referencedTokens() {
    return this.account.referencedTokens
  }
  get cachedTokens() {
    return this.account.cachedTokens
  }
  get running() {
    return this.account.running
  }
  get waiting() {
    return this.account.waiting
  }
  get inTool() {
    return this.account.inTool
  }
  get driftTokens() {
    return this.account.driftTokens
  }
  get foreignTokens() {
    return this.account.foreignTokens
  }
  get head() {
    return this.state.queue.peek()
  }
  get placed() {
    return this.state.placed
  }
  get wave() {
    return this.state.wave
  }
}
