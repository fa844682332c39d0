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
import { GroupLengths } from './groupLengths'
import { Heap } from './heap'
import { kvHeadroom } from './kvHeadroom'
import { leastRequests } from './leastRequests'
import { type EngineSpec, type KvReport, Ledger } from './ledger'
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

const defaults: PolicyOptions = { repinMargin: 0.3, reserveShare: 0, reserveShareWithoutPriority: 0.1 }

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
  private readonly lengths: GroupLengths
  private readonly seats = new Map<EngineId, Seat>()
  private readonly members = new Map<TrajectoryId, Member>()
  private readonly freshQueue = new Heap<Member>(oldestFirst)
  private readonly homelessQueue = new Heap<Member>(oldestFirst)
  private evictions: { trajectory: TrajectoryId; engine: EngineId }[] = []

  constructor(
    readonly policy: PolicyName,
    options: SchedulerOptions,
  ) {
    this.rule = policies[policy]
    this.ledger = new Ledger(options)
    this.lengths = new GroupLengths(options)
    this.options = {
      repinMargin: options.repinMargin ?? defaults.repinMargin,
      reserveShare: options.reserveShare ?? defaults.reserveShare,
      reserveShareWithoutPriority: options.reserveShareWithoutPriority ?? defaults.reserveShareWithoutPriority,
    }
    for (const [name, value] of Object.entries(this.options)) {
      if (!(value >= 0 && value <= 1)) throw new RangeError(`${name} is a share between 0 and 1, not ${value}`)
    }
  }

  // ---- the view ----

  get homeless(): WaitingTurn | undefined {
    return this.homelessQueue.peek()
  }

  get fresh(): WaitingTurn | undefined {
    return this.freshQueue.peek()
  }

  needTokens(turn: WaitingTurn): number {
    return this.lengths.estimate(turn.group, turn.trajectory, turn.contextTokens, turn.boundTokens)
  }

  committedTokens(engine: Seen): number {
    return this.ledger.committedTokens(engine.account, this.nowMs)
  }

  addedTokens(engine: Seen, turn: WaitingTurn, needTokens: number): number {
    return this.ledger.addedTokens(engine.account, turn.group, turn.promptTokens, needTokens)
  }

  startTokens(turn: WaitingTurn): number {
    return this.ledger.startTokens(turn.trajectory, turn.contextTokens)
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
    this.seats.set(spec.engine, { queue: new Heap(oldestFirst), placed: 0, wave: 0 })
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
    this.lengths.observe(member.group, member.trajectory, ask.contextTokens)
    switch (member.phase) {
      case 'fresh':
      case 'homeless':
        return
      case 'placed':
        this.ledger.grow(member.trajectory, { needTokens: this.needTokens(member) })
        return
      case 'lost':
        this.enqueue(member, 'homeless')
        return
      case 'running':
      case 'tool':
        this.ledger.return(member.trajectory, this.needTokens(member))
        this.enqueue(member, 'placed')
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
    member.phase = 'tool'
    member.contextTokens = contextTokens
    this.lengths.observe(member.group, trajectory, contextTokens)
    this.ledger.toTool(trajectory, contextTokens, nowMs)
    this.ledger.grow(trajectory, { needTokens: this.needTokens(member) })
  }

  trajectoryReleased(trajectory: TrajectoryId, counts = true): void {
    const member = this.members.get(trajectory)
    if (member === undefined) return
    this.queueOf(member)?.remove(member)
    const holding = this.ledger.holding(trajectory)
    if (holding !== undefined && holding.tokens > 0) this.evictions.push({ trajectory, engine: holding.engine })
    this.ledger.release(trajectory)
    this.lengths.finish(member.group, trajectory, counts)
    this.members.delete(trajectory)
  }

  decide(nowMs: number): SchedulerDecision {
    this.nowMs = nowMs
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
      wave: 0,
      phase: 'lost',
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
    const from = member.engine
    this.queueOf(member)!.remove(member)
    if (from !== step.engine) {
      if (from !== null) {
        if (this.ledger.holding(member.trajectory)!.tokens > 0) {
          this.evictions.push({ trajectory: member.trajectory, engine: from })
        }
        this.ledger.release(member.trajectory)
      }
      this.put(member, step.engine, 0)
    }
    if (step.kind === 'place') {
      this.enqueue(member, 'placed')
      return
    }
    if (step.opensWave) this.seats.get(step.engine)!.wave = member.wave
    this.start(member, step.engine)
    const movedFrom = from !== null && from !== step.engine ? from : null
    assignments.push({ trajectory: member.trajectory, engine: step.engine, order: member.order, movedFrom })
  }

  private put(member: Member, engine: EngineId, heldTokens: number): void {
    const { trajectory, group, promptTokens } = member
    const needTokens = this.needTokens(member)
    this.ledger.admit({ trajectory, group, engine, promptTokens, needTokens, heldTokens })
    this.seats.get(engine)!.placed++
    member.engine = engine
  }

  private start(member: Member, engine: EngineId): void {
    if (member.heapIndex >= 0) this.queueOf(member)!.remove(member)
    this.ledger.run(member.trajectory, member.contextTokens)
    member.engine = engine
    member.phase = 'running'
  }

  private enqueue(member: Member, phase: 'fresh' | 'homeless' | 'placed'): void {
    member.phase = phase
    const seat = phase === 'placed' ? this.seats.get(member.engine!)! : undefined
    member.wave = seat !== undefined && this.rule.barrier ? seat.wave + 1 : 0
    this.queueOf(member)!.push(member)
  }

  private queueOf(member: Member): Heap<Member> | undefined {
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
        head.engine = null
        this.enqueue(head, 'homeless')
        head = engine.seat.queue.peek()
      }
    }
    for (const queue of [this.homelessQueue, this.freshQueue]) {
      let head = queue.peek()
      while (head !== undefined && !fitsSome(head)) {
        queue.remove(head)
        head.phase = 'lost'
        unfit.push(head.trajectory)
        head = queue.peek()
      }
    }
  }

  private look(): void {
    this.engines = this.ledger.engines.map(account => new Seen(account, this.seats.get(account.spec.engine)!))
  }
}
