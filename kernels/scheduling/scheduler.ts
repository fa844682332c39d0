/**
 * A scheduler without an actor around it: the queues, the ledger, and a policy that is asked step by step.
 *
 * in   engines that come, go and report; turns that are asked for, end, and trajectories that are released
 * out  `decide(nowMs)`: which turns start where, whose KV is dropped, which turns fit no engine
 * Invariant: the same calls give the same decisions; an engine never runs more than its maxSequences; messages that come
 * twice or late change nothing. It changes only itself; a simulator drives it exactly as the scheduler actor does.
 */
import type { EngineId, TrajectoryId } from '../../messages/ids'
import type { PolicyName, Scheduler, SchedulerDecision, SchedulerOptions, TurnAsk, TurnAssignment } from './contract'
import { FreshQueue } from './freshQueue'
import { Heap } from './heap'
import { HomelessQueue } from './homelessQueue'
import { kvHeadroom } from './kvHeadroom'
import { leastRequests } from './leastRequests'
import { type EngineSpec, type KvReport, Ledger } from './ledger'
import { Outlook } from './outlook'
import { fits, type Policy, type PolicyOptions, type SchedulerView, type Step, type WaitingTurn } from './policy'
import { type Member, oldestFirst, type Seat, Seen } from './seat'
import { staticPolicy } from './static'
import { staticAsync } from './staticAsync'

export const policies: Readonly<Record<PolicyName, Policy>> = {
  static: staticPolicy,
  'static-async': staticAsync,
  'least-requests': leastRequests,
  'kv-headroom': kvHeadroom,
}

const defaults: PolicyOptions = {
  repinMargin: 0.2,
  overcommit: 1.35,
  reserveShare: 0.07,
  reserveShareWithoutPriority: 0.1,
}

/** Throws RangeError on an unknown policy or an option out of range. */
export function createScheduler(policy: PolicyName, options: SchedulerOptions = {}): Scheduler {
  if (!Object.hasOwn(policies, policy)) {
    throw new RangeError(`no scheduling policy '${policy}'; there are ${Object.keys(policies).join(', ')}`)
  }
  return new PolicyScheduler(policy, options)
}

class PolicyScheduler implements Scheduler, SchedulerView {
  readonly ledger: Ledger
  readonly options: PolicyOptions
  nowMs = 0
  engines: readonly Seen[] = []
  private readonly rule: Policy
  private readonly outlook: Outlook
  private readonly seats = new Map<EngineId, Seat>()
  private readonly members = new Map<TrajectoryId, Member>()
  private readonly freshQueue: FreshQueue
  private readonly homelessQueue = new HomelessQueue()
  private evictions: { trajectory: TrajectoryId; engine: EngineId }[] = []

  constructor(
    readonly policy: PolicyName,
    options: SchedulerOptions,
  ) {
    this.rule = policies[policy]
    this.ledger = new Ledger(options)
    this.outlook = new Outlook(this.ledger, options)
    this.freshQueue = new FreshQueue(this.rule.startOrder ?? 'oldest', this.outlook.lives)
    this.options = {
      repinMargin: options.repinMargin ?? defaults.repinMargin,
      overcommit: options.overcommit ?? (this.outlook.forecasts ? defaults.overcommit : 1),
      reserveShare: options.reserveShare ?? (this.outlook.forecasts ? defaults.reserveShare : 0),
      reserveShareWithoutPriority: options.reserveShareWithoutPriority ?? defaults.reserveShareWithoutPriority,
    }
    for (const [name, value] of Object.entries(this.options)) {
      if (name === 'overcommit' ? !(value >= 0) : !(value >= 0 && value <= 1)) {
        throw new RangeError(`${name} is a share ${name === 'overcommit' ? 'from 0' : 'between 0 and 1'}, not ${value}`)
      }
    }
  }

  // ---- the view ----

  get homeless(): WaitingTurn | undefined {
    return this.homelessQueue.peek(this.nowMs, this.patienceMs)
  }

  get fresh(): WaitingTurn | undefined {
    return this.freshQueue.peek(this.nowMs)
  }

  get freshCount(): number {
    return this.freshQueue.size
  }

  get patienceMs(): number {
    return this.freshQueue.patienceMs
  }

  get forecasts(): boolean {
    return this.outlook.forecasts
  }

  get lastTurnShare(): number {
    return this.outlook.lastTurnShare
  }

  demandTokens(engine: Seen): number {
    return this.outlook.demandTokens(engine, this.nowMs)
  }

  demandTokensWith(engine: Seen, turn: WaitingTurn): number {
    return this.outlook.demandTokensWith(engine, this.members.get(turn.trajectory)!, this.nowMs)
  }

  heldTokensWith(engine: Seen, turn: WaitingTurn): number {
    return this.outlook.heldTokensWith(engine, this.members.get(turn.trajectory)!, this.nowMs)
  }

  // ---- events ----

  get waitingTurns(): number {
    let waiting = this.freshQueue.size + this.homelessQueue.size
    for (const seat of this.seats.values()) waiting += seat.queue.size
    return waiting
  }

  engineJoined(spec: EngineSpec): void {
    if (this.seats.has(spec.engine)) this.engineLeft(spec.engine)
    this.ledger.join(spec)
    // Shares are equal from here on; the newcomer does not make up for what it missed.
    for (const seat of this.seats.values()) seat.placed = 0
    const forecast = this.outlook.newForecast(spec)
    this.seats.set(spec.engine, { queue: new Heap(oldestFirst), forecast, placed: 0, wave: 0 })
    this.look()
  }

  engineLeft(engine: EngineId): readonly TrajectoryId[] {
    const seat = this.seats.get(engine)
    if (seat === undefined) return []
    this.seats.delete(engine)
    const wereRunning: TrajectoryId[] = []
    for (const trajectory of this.ledger.leave(engine)) {
      const member = this.members.get(trajectory)!
      member.engine = null
      if (member.phase === 'placed') {
        seat.queue.remove(member)
        this.enqueue(member, 'homeless')
      } else {
        if (member.phase === 'running') wereRunning.push(trajectory)
        member.phase = 'lost'
      }
    }
    this.evictions = this.evictions.filter(one => one.engine !== engine)
    this.look()
    return wereRunning
  }

  engineStatus(status: KvReport & { readonly engine: EngineId }): void {
    if (this.seats.has(status.engine)) this.ledger.correct(status.engine, status)
  }

  turnAsked(ask: TurnAsk): void {
    const member = this.members.get(ask.trajectory) ?? this.newMember(ask)
    member.contextTokens = ask.contextTokens
    member.boundTokens = ask.boundTokens
    this.learn(member)
    switch (member.phase) {
      case 'fresh':
      case 'homeless':
        return
      case 'placed':
        this.ledger.grow(member.trajectory, { needTokens: this.outlook.needTokens(member) })
        return
      case 'lost':
        this.enqueue(member, 'homeless')
        return
      case 'running':
      case 'tool':
        this.ledger.return(member.trajectory, this.outlook.needTokens(member))
        this.enqueue(member, 'placed')
        this.seats.get(member.engine!)!.forecast.put(member, this.nowMs)
    }
  }

  turnRunning(ask: TurnAsk, engine: EngineId): void {
    this.turnAsked({ ...ask, engine })
    const member = this.members.get(ask.trajectory)
    if (member?.phase === 'placed' && member.engine === engine) this.start(member, engine)
  }

  turnEnded(trajectory: TrajectoryId, contextTokens: number, nowMs: number): void {
    const member = this.members.get(trajectory)
    if (member?.phase !== 'running') return
    const { forecast } = this.seats.get(member.engine!)!
    this.outlook.turnEnded()
    forecast.grew(contextTokens - member.contextTokens, nowMs - member.sinceMs)
    member.phase = 'tool'
    member.sinceMs = nowMs
    member.contextTokens = contextTokens
    this.nowMs = nowMs
    this.learn(member)
    forecast.put(member, nowMs)
    this.ledger.toTool(trajectory, contextTokens, nowMs)
    this.ledger.grow(trajectory, { needTokens: this.outlook.needTokens(member) })
  }

  trajectoryReleased(trajectory: TrajectoryId, counts = true): void {
    const member = this.members.get(trajectory)
    if (member === undefined) return
    this.queueOf(member)?.remove(member)
    const holding = this.ledger.holding(trajectory)
    const engine = holding !== undefined && holding.tokens > 0 ? holding.engine : member.lastEngine
    if (engine !== null && this.seats.has(engine)) this.evictions.push({ trajectory, engine })
    this.ledger.release(trajectory)
    if (member.engine !== null) this.seats.get(member.engine)!.forecast.take(member)
    if (counts && member.begunMs !== null) this.freshQueue.lived(this.nowMs - member.begunMs)
    this.outlook.lifeEnded(member.group, trajectory, counts, member.begunMs !== null)
    this.freshQueue.learnt(member.group)
    this.members.delete(trajectory)
  }

  decide(nowMs: number): SchedulerDecision {
    this.nowMs = nowMs
    this.outlook.decides()
    const assignments: TurnAssignment[] = []
    const unfit: TrajectoryId[] = []
    if (this.engines.length > 0) {
      for (;;) {
        this.takeOutUnfit(unfit)
        const step = this.rule.next(this)
        if (step === null) break
        this.carryOut(step, assignments)
      }
    }
    const evictions = this.evictions
    this.evictions = []
    return { assignments, evictions, unfit }
  }

  // ---- what it does to itself ----

  private newMember(ask: TurnAsk): Member {
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
    if (ask.engine !== null && this.seats.has(ask.engine)) {
      this.put(member, ask.engine, contextTokens)
      member.phase = 'tool'
    } else if (ask.turn === 0 && contextTokens <= promptTokens) this.enqueue(member, 'fresh')
    return member
  }

  private carryOut(step: Step, assignments: TurnAssignment[]): void {
    // A view's turns are the scheduler's own members.
    const member = this.members.get(step.turn.trajectory)!
    this.queueOf(member)!.remove(member)
    if (step.kind === 'pause') {
      this.leaveEngine(member)
      member.pausedMs = this.nowMs
      this.enqueue(member, 'homeless')
      return
    }
    const from = member.engine ?? member.lastEngine
    const moves = from !== null && from !== step.engine
    if (
      moves &&
      this.seats.has(from) &&
      (member.engine === null || this.ledger.holding(member.trajectory)!.tokens > 0)
    ) {
      this.evictions.push({ trajectory: member.trajectory, engine: from })
    }
    if (member.engine !== step.engine) {
      if (member.engine !== null) this.leaveEngine(member)
      this.put(member, step.engine, 0)
    }
    if (step.kind === 'place') {
      this.enqueue(member, 'placed')
      return
    }
    if (step.opensWave) this.seats.get(step.engine)!.wave = member.wave
    this.start(member, step.engine)
    assignments.push({
      trajectory: member.trajectory,
      engine: step.engine,
      order: member.order,
      movedFrom: moves ? from : null,
    })
  }

  /** It is on no engine any more, and may come back to the one it was on. */
  private leaveEngine(member: Member): void {
    const engine = member.engine!
    member.lastEngine = this.ledger.holding(member.trajectory)!.tokens > 0 ? engine : null
    this.ledger.release(member.trajectory)
    this.seats.get(engine)!.forecast.take(member)
    member.engine = null
  }

  private put(member: Member, engine: EngineId, heldTokens: number): void {
    const { trajectory, group, promptTokens } = member
    const needTokens = this.outlook.needTokens(member)
    this.ledger.admit({ trajectory, group, engine, promptTokens, needTokens, heldTokens })
    const seat = this.seats.get(engine)!
    seat.placed++
    member.engine = engine
    seat.forecast.put(member, this.nowMs)
  }

  private start(member: Member, engine: EngineId): void {
    if (member.heapIndex >= 0) this.queueOf(member)!.remove(member)
    this.ledger.run(member.trajectory, member.contextTokens)
    member.engine = engine
    member.phase = 'running'
    member.sinceMs = this.nowMs
    member.begunMs ??= this.nowMs
    member.lastEngine = null
    member.pausedMs = null
    this.seats.get(engine)!.forecast.put(member, this.nowMs)
  }

  private learn(member: Member): void {
    this.outlook.learn(member)
    this.freshQueue.learnt(member.group)
  }

  private enqueue(member: Member, phase: 'fresh' | 'homeless' | 'placed'): void {
    member.phase = phase
    const seat = phase === 'placed' ? this.seats.get(member.engine!)! : undefined
    member.wave = seat !== undefined && this.rule.barrier ? seat.wave + 1 : 0
    this.queueOf(member)!.push(member)
  }

  private queueOf(member: Member): Pick<Heap<Member>, 'push' | 'remove'> | undefined {
    switch (member.phase) {
      case 'fresh':
        return this.freshQueue
      case 'homeless':
        return this.homelessQueue
      case 'placed':
        return this.seats.get(member.engine!)!.queue
      default:
        return undefined
    }
  }

  /** Heads that no engine could take leave their queue; a placed one that only its own engine cannot take looks anew. */
  private takeOutUnfit(unfit: TrajectoryId[]): void {
    const fitsSome = (member: Member): boolean => this.engines.some(engine => fits(engine, member))
    for (const engine of this.engines) {
      let head = engine.seat.queue.peek()
      while (head !== undefined && !fits(engine, head)) {
        engine.seat.queue.remove(head)
        this.evictions.push({ trajectory: head.trajectory, engine: engine.spec.engine })
        this.ledger.release(head.trajectory)
        engine.seat.forecast.take(head)
        head.engine = null
        this.enqueue(head, 'homeless')
        head = engine.seat.queue.peek()
      }
    }
    const takeOut = (queue: Pick<Heap<Member>, 'remove'>, peek: () => Member | undefined): void => {
      for (let head = peek(); head !== undefined && !fitsSome(head); head = peek()) {
        queue.remove(head)
        head.phase = 'lost'
        unfit.push(head.trajectory)
      }
    }
    takeOut(this.homelessQueue, () => this.homelessQueue.peek(this.nowMs, this.patienceMs))
    takeOut(this.freshQueue, () => this.freshQueue.peek(this.nowMs))
  }

  private look(): void {
    this.engines = this.ledger.engines.map(account => new Seen(account, this.seats.get(account.spec.engine)!))
  }
}
