/**
 * The scheduler's records: a member for each trajectory, a state for each engine, and the engine's view for policies.
 * Invariant: a member is in at most one queue, and its phase says in which.
 */
import type { EngineId } from '../../messages/ids'
import type { Forecast } from './forecast'
import type { Heap, HeapItem } from './heap'
import type { EngineAccount } from './kvAccount'
import type { EngineView, WaitingTurn } from './policy'

/**
 * fresh: has not begun. homeless: has begun, and no engine has it. placed: waits on its engine. tool: between two turns.
 * lost: its engine left during a turn, or no engine can take it; it is in no queue until it is asked for again.
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
  /** Order within its queue, smaller first. It counts before the start order. */
  rank: number
  phase: Phase
  /** Time at which its turn or its tool call began. */
  sinceMs: number
  /** Time of its first turn; null before. */
  begunMs: number | null
}

/** Orders members by wave, rank, start order, and trajectory id. */
export const oldestFirst = (a: Member, b: Member): number =>
  a.wave - b.wave || a.rank - b.rank || a.order - b.order || (a.trajectory < b.trajectory ? -1 : 1)

export interface EngineState {
  /** Turns that wait on this engine. */
  readonly queue: Heap<Member>
  readonly forecast: Forecast<Member>
  /** Trajectories placed here since the last engine joined. */
  placed: number
  /** The wave that is running. */
  wave: number
}

/** Shows a policy the ledger's account and the engine's state, without a copy of either. */
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
