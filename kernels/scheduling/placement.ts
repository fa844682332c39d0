/**
 * Tracks where every trajectory is: its phase, its queue and its engine, in step with the ledger and the forecasts.
 *
 * in   moves of single trajectories, as the scheduler orders them
 * out  the queues, the engines' states, evictions
 * Invariant: between two calls of the scheduler, a trajectory's phase, its queue, its holding in the ledger and its
 * entry in a forecast agree.
 */
import type { EngineId, TrajectoryId } from '../../messages/ids'
import type { SchedulerDecision, SchedulerOptions, TurnAsk } from './contract'
import { Demand } from './demand'
import { type EngineState, type Member, oldestFirst, StateView } from './engineState'
import { FreshQueue } from './freshQueue'
import { Heap } from './heap'
import { HomelessQueue } from './homelessQueue'
import type { EngineSpec } from './kvAccount'
import { Ledger } from './ledger'
import { fits, type Policy } from './policy'

type Queue = Pick<Heap<Member>, 'push' | 'remove'>

/** Age at which a paused trajectory goes ahead of all others, as a multiple of a trajectory's mean lifetime. */
const pausedLives = 4

export class Placement {
  readonly ledger: Ledger
  readonly demand: Demand
  readonly members = new Map<TrajectoryId, Member>()
  readonly states = new Map<EngineId, EngineState>()
  readonly freshQueue: FreshQueue
  readonly homelessQueue = new HomelessQueue()
  /** Views of all engines, in the order in which they joined. */
  engines: readonly StateView[] = []
  nowMs = 0
  private evictions: { trajectory: TrajectoryId; engine: EngineId }[] = []

  constructor(
    private readonly policy: Policy,
    options: SchedulerOptions,
  ) {
    this.ledger = new Ledger(options)
    this.demand = new Demand(this.ledger, options)
    this.freshQueue = new FreshQueue(policy.startOrder ?? 'oldest', this.demand.lengthModel)
  }

  join(spec: EngineSpec): void {
    this.ledger.join(spec)
    // Resets the placement counts, so that shares are equal from now on: the new engine does not make up for what it
    // missed.
    for (const state of this.states.values()) state.placed = 0
    const forecast = this.demand.newForecast(spec)
    this.states.set(spec.engine, { queue: new Heap(oldestFirst), forecast, placed: 0, wave: 0 })
    this.refreshViews()
  }

  /** Removes an engine. Returns the trajectories whose turn was running on it. */
  leave(engine: EngineId): readonly TrajectoryId[] {
    const state = this.states.get(engine)
    if (state === undefined) return []
    this.states.delete(engine)
    const wereRunning: TrajectoryId[] = []
    for (const trajectory of this.ledger.leave(engine)) {
      const member = this.members.get(trajectory)!
      member.engine = null
      if (member.phase === 'placed') {
        state.queue.remove(member)
        this.enqueue(member, 'homeless')
      } else {
        if (member.phase === 'running') wereRunning.push(trajectory)
        member.phase = 'lost'
      }
    }
    this.evictions = this.evictions.filter(one => one.engine !== engine)
    this.refreshViews()
    return wereRunning
  }

  /** Adds a trajectory that is not known yet, at a request for one of its turns. */
  add(ask: TurnAsk): Member {
    const { trajectory, group, order, contextTokens, promptTokens, boundTokens } = ask
    const member: Member = {
      trajectory,
      group,
      order,
      contextTokens,
      promptTokens,
      boundTokens,
      engine: null,
      lastEngine: null,
      pausedMs: null,
      wave: 0,
      rank: 0,
      phase: 'lost',
      sinceMs: this.nowMs,
      begunMs: null,
      heapIndex: -1,
    }
    this.members.set(trajectory, member)
    if (ask.engine !== null && this.states.has(ask.engine)) {
      this.put(member, ask.engine, contextTokens)
      member.phase = 'tool'
    } else if (ask.turn === 0 && contextTokens <= promptTokens) this.enqueue(member, 'fresh')
    return member
  }

  /** Removes a trajectory that is over, and orders the eviction of the KV that it may have left on an engine. */
  release(member: Member): void {
    const { trajectory } = member
    this.queueOf(member)?.remove(member)
    const holding = this.ledger.holding(trajectory)
    const engine = holding !== undefined && holding.tokens > 0 ? holding.engine : member.lastEngine
    if (engine !== null && this.states.has(engine)) this.evict(trajectory, engine)
    this.ledger.release(trajectory)
    if (member.engine !== null) this.states.get(member.engine)!.forecast.take(member)
    this.members.delete(trajectory)
  }

  learn(member: Member): void {
    this.demand.learn(member)
    this.freshQueue.groupLearnt(member.group)
  }

  put(member: Member, engine: EngineId, heldTokens: number): void {
    const { trajectory, group, promptTokens } = member
    const needTokens = this.demand.needTokens(member)
    this.ledger.admit({ trajectory, group, engine, promptTokens, needTokens, heldTokens })
    const state = this.states.get(engine)!
    state.placed++
    member.engine = engine
    state.forecast.put(member, this.nowMs)
  }

  /** Takes a trajectory off its engine, and remembers the engine: the trajectory's prefix may still be cached there. */
  takeOff(member: Member): void {
    const engine = member.engine!
    member.lastEngine = this.ledger.holding(member.trajectory)!.tokens > 0 ? engine : null
    this.ledger.release(member.trajectory)
    this.states.get(engine)!.forecast.take(member)
    member.engine = null
  }

  start(member: Member, engine: EngineId): void {
    if (member.heapIndex >= 0) this.queueOf(member)!.remove(member)
    this.ledger.run(member.trajectory, member.contextTokens)
    member.engine = engine
    member.phase = 'running'
    member.sinceMs = this.nowMs
    member.begunMs ??= this.nowMs
    member.lastEngine = null
    member.pausedMs = null
    this.states.get(engine)!.forecast.put(member, this.nowMs)
  }

  enqueue(member: Member, phase: 'fresh' | 'homeless' | 'placed'): void {
    member.phase = phase
    const state = phase === 'placed' ? this.states.get(member.engine!)! : undefined
    member.wave = state !== undefined && this.policy.barrier ? state.wave + 1 : 0
    this.queueOf(member)!.push(member)
  }

  dequeue(member: Member): void {
    this.queueOf(member)!.remove(member)
  }

  evict(trajectory: TrajectoryId, engine: EngineId): void {
    this.evictions.push({ trajectory, engine })
  }

  takeEvictions(): SchedulerDecision['evictions'] {
    const evictions = this.evictions
    this.evictions = []
    return evictions
  }

  /**
   * Removes and returns the turns at the heads of queues that fit no engine. A turn that fits another engine but not
   * the one that its trajectory is on is moved to the queue of trajectories without an engine.
   */
  takeUnfit(): readonly TrajectoryId[] {
    for (const engine of this.engines) {
      const { queue, forecast } = engine.state
      for (let head = queue.peek(); head !== undefined && !fits(engine, head); head = queue.peek()) {
        queue.remove(head)
        this.evict(head.trajectory, engine.spec.engine)
        this.ledger.release(head.trajectory)
        forecast.take(head)
        head.engine = null
        this.enqueue(head, 'homeless')
      }
    }
    const unfit: TrajectoryId[] = []
    const takeFrom = (queue: Queue, peek: () => Member | undefined): void => {
      for (let head = peek(); head !== undefined && !this.fitsAny(head); head = peek()) {
        queue.remove(head)
        head.phase = 'lost'
        unfit.push(head.trajectory)
      }
    }
    takeFrom(this.homelessQueue, () => this.firstHomeless())
    takeFrom(this.freshQueue, () => this.freshQueue.peek(this.nowMs))
    return unfit
  }

  /** Age, in ms since the start of its first turn, above which a paused trajectory goes ahead of all others. */
  get patienceMs(): number {
    return pausedLives * this.freshQueue.meanLifetimeMs
  }

  firstHomeless(): Member | undefined {
    return this.homelessQueue.peek(this.nowMs, this.patienceMs)
  }

  private fitsAny(member: Member): boolean {
    return this.engines.some(engine => fits(engine, member))
  }

  private queueOf(member: Member): Queue | undefined {
    switch (member.phase) {
      case 'fresh':
        return this.freshQueue
      case 'homeless':
        return this.homelessQueue
      case 'placed':
        return this.states.get(member.engine!)!.queue
      default:
        return undefined
    }
  }

  private refreshViews(): void {
    this.engines = this.ledger.engines.map(account => new StateView(account, this.states.get(account.spec.engine)!))
  }
}
