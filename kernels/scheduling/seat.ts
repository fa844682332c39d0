/**
 * A trajectory in the scheduler's books, and an engine's seat there: its queue, and how a policy sees it.
 * Invariant: a member is in at most one heap, and its phase says in which.
 */
import type { EngineId } from '../../messages/ids'
import type { Forecast } from './forecast'
import type { Heap, HeapItem } from './heap'
import type { EngineAccount } from './ledger'
import type { EngineView, WaitingTurn } from './policy'

/** fresh: never began. homeless: began, has no engine. placed: waits on its engine. lost: its engine left in a turn. */
type Phase = 'fresh' | 'homeless' | 'placed' | 'running' | 'tool' | 'lost'

export interface Member extends HeapItem, WaitingTurn {
  contextTokens: number
  boundTokens: number
  order: number
  engine: EngineId | null
  lastEngine: EngineId | null
  pausedMs: number | null
  wave: number
  /** Smaller goes first in its queue, before its start order counts. */
  rank: number
  phase: Phase
  /** When it was put where its phase says; when it first began, null before. */
  sinceMs: number
  begunMs: number | null
}

export interface Seat {
  readonly queue: Heap<Member>
  readonly forecast: Forecast<Member>
  placed: number
  wave: number
}

export const oldestFirst = (a: Member, b: Member): number =>
  a.wave - b.wave || a.rank - b.rank || a.order - b.order || (a.trajectory < b.trajectory ? -1 : 1)

/** An engine as a policy sees it: the ledger's account and the seat, without a copy of either. */
export class Seen implements EngineView {
  constructor(
    readonly account: EngineAccount,
    readonly seat: Seat,
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
    return this.seat.queue.peek()
  }
  get placed() {
    return this.seat.placed
  }
  get wave() {
    return this.seat.wave
  }
}
