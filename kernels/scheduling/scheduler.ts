/**
 * Implements a scheduler as plain state, without an actor: events change the state, and a policy is asked step by step.
 *
 * in   engines that join, leave and report; turns that are requested, start and end; trajectories that are released
 * out  `decide(nowMs)`: which turns start where, whose KV is evicted, which turns fit no engine
 * The scheduler actor and the simulator call it in the same way.
 * Invariant: the same calls give the same decisions; no decision starts a turn on an engine that already runs
 * maxSequences turns; an end or a release that comes twice, or for an unknown trajectory, changes nothing.
 */
import type { EngineId, TrajectoryId } from '../../messages/ids'
import type { PolicyName, Scheduler, SchedulerDecision, SchedulerOptions, TurnAsk, TurnAssignment } from './contract'
import type { Member, StateView } from './engineState'
import type { EngineSpec, KvReport } from './kvAccount'
import { kvHeadroom } from './kvHeadroom'
import { leastRequests } from './leastRequests'
import type { Ledger } from './ledger'
import { Placement } from './placement'
import type { Policy, PolicyOptions, SchedulerView, Step, WaitingTurn } from './policy'
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

/** Creates a scheduler with the given policy. @throws RangeError on an unknown policy or an option out of range */
export function createScheduler(policy: PolicyName, options: SchedulerOptions = {}): Scheduler {
  if (!Object.hasOwn(policies, policy)) {
    throw new RangeError(`unknown scheduling policy '${policy}'; known policies: ${Object.keys(policies).join(', ')}`)
  }
  return new PolicyScheduler(policy, options)
}

class PolicyScheduler implements Scheduler, SchedulerView {
  readonly options: PolicyOptions
  private readonly placement: Placement

  constructor(
    readonly policy: PolicyName,
    options: SchedulerOptions,
  ) {
    this.placement = new Placement(policies[policy], options)
    const { forecasts } = this.placement.demand
    this.options = {
      repinMargin: options.repinMargin ?? defaults.repinMargin,
      overcommit: options.overcommit ?? (forecasts ? defaults.overcommit : 1),
      reserveShare: options.reserveShare ?? (forecasts ? defaults.reserveShare : 0),
      reserveShareWithoutPriority: options.reserveShareWithoutPriority ?? defaults.reserveShareWithoutPriority,
    }
    for (const [name, value] of Object.entries(this.options)) {
      if (name === 'overcommit' ? !(value >= 0) : !(value >= 0 && value <= 1)) {
        throw new RangeError(
          `${name} is ${value}; expected a share ${name === 'overcommit' ? 'of at least 0' : 'between 0 and 1'}`,
        )
      }
    }
  }

  // View of the scheduler's state that policies read.

  get nowMs(): number {
    return this.placement.nowMs
  }

  get engines(): readonly StateView[] {
    return this.placement.engines
  }

  get homeless(): WaitingTurn | undefined {
    return this.placement.firstHomeless()
  }

  get fresh(): WaitingTurn | undefined {
    return this.placement.freshQueue.peek(this.nowMs)
  }

  get freshCount(): number {
    return this.placement.freshQueue.size
  }

  get homelessCount(): number {
    return this.placement.homelessQueue.size
  }

  get patienceMs(): number {
    return this.placement.patienceMs
  }

  get forecasts(): boolean {
    return this.placement.demand.forecasts
  }

  get lastTurnShare(): number {
    return this.placement.demand.lastTurnShare
  }

  demandTokens(engine: StateView): number {
    return this.placement.demand.demandTokens(engine, this.nowMs)
  }

  demandTokensWith(engine: StateView, turn: WaitingTurn): number {
    return this.placement.demand.demandTokensWith(engine, this.memberOf(turn), this.nowMs)
  }

  heldTokensWith(engine: StateView, turn: WaitingTurn): number {
    return this.placement.demand.heldTokensWith(engine, this.memberOf(turn), this.nowMs)
  }

  // Events that change the scheduler's state.

  get ledger(): Ledger {
    return this.placement.ledger
  }

  get waitingTurns(): number {
    const { freshQueue, homelessQueue, states } = this.placement
    let waiting = freshQueue.size + homelessQueue.size
    for (const state of states.values()) waiting += state.queue.size
    return waiting
  }

  engineJoined(spec: EngineSpec): void {
    this.placement.leave(spec.engine)
    this.placement.join(spec)
  }

  engineLeft(engine: EngineId): readonly TrajectoryId[] {
    return this.placement.leave(engine)
  }

  engineStatus(status: KvReport & { readonly engine: EngineId }): void {
    if (this.placement.states.has(status.engine)) this.ledger.correct(status.engine, status)
  }

  turnAsked(ask: TurnAsk): void {
    const { members, states, demand } = this.placement
    const member = members.get(ask.trajectory) ?? this.placement.add(ask)
    member.contextTokens = ask.contextTokens
    member.boundTokens = ask.boundTokens
    this.placement.learn(member)
    switch (member.phase) {
      case 'fresh':
      case 'homeless':
        return
      case 'placed':
        this.ledger.grow(member.trajectory, { needTokens: demand.needTokens(member) })
        return
      case 'lost':
        this.placement.enqueue(member, 'homeless')
        return
      case 'running':
      case 'tool':
        this.ledger.return(member.trajectory, demand.needTokens(member))
        this.placement.enqueue(member, 'placed')
        states.get(member.engine!)!.forecast.put(member, this.nowMs)
    }
  }

  turnRunning(ask: TurnAsk, engine: EngineId): void {
    this.turnAsked({ ...ask, engine })
    const member = this.placement.members.get(ask.trajectory)
    if (member?.phase === 'placed' && member.engine === engine) this.placement.start(member, engine)
  }

  turnEnded(trajectory: TrajectoryId, contextTokens: number, nowMs: number): void {
    const { members, states, demand } = this.placement
    const member = members.get(trajectory)
    if (member?.phase !== 'running') return
    const { forecast } = states.get(member.engine!)!
    demand.turnEnded()
    forecast.grew(contextTokens - member.contextTokens, nowMs - member.sinceMs)
    member.phase = 'tool'
    member.sinceMs = nowMs
    member.contextTokens = contextTokens
    this.placement.nowMs = nowMs
    this.placement.learn(member)
    forecast.put(member, nowMs)
    this.ledger.toTool(trajectory, contextTokens, nowMs)
    this.ledger.grow(trajectory, { needTokens: demand.needTokens(member) })
  }

  trajectoryReleased(trajectory: TrajectoryId, counts = true): void {
    const { members, freshQueue, demand } = this.placement
    const member = members.get(trajectory)
    if (member === undefined) return
    this.placement.release(member)
    if (counts && member.begunMs !== null) freshQueue.trajectoryEnded(this.nowMs - member.begunMs)
    demand.trajectoryEnded(member.group, trajectory, counts, member.begunMs !== null)
    freshQueue.groupLearnt(member.group)
  }

  decide(nowMs: number): SchedulerDecision {
    this.placement.nowMs = nowMs
    this.placement.demand.beginDecision()
    const assignments: TurnAssignment[] = []
    const unfit: TrajectoryId[] = []
    if (this.engines.length > 0) {
      for (;;) {
        unfit.push(...this.placement.takeUnfit())
        const step = policies[this.policy].next(this)
        if (step === null) break
        this.carryOut(step, assignments)
      }
    }
    return { assignments, evictions: this.placement.takeEvictions(), unfit }
  }

  private carryOut(step: Step, assignments: TurnAssignment[]): void {
    const { placement, ledger } = this
    const member = this.memberOf(step.turn)
    const { trajectory, order } = member
    placement.dequeue(member)
    if (step.kind === 'pause') {
      placement.takeOff(member)
      member.pausedMs = this.nowMs
      placement.enqueue(member, 'homeless')
      return
    }
    const from = member.engine ?? member.lastEngine
    const moves = from !== null && from !== step.engine
    const hasKv = member.engine === null || ledger.holding(trajectory)!.tokens > 0
    if (moves && placement.states.has(from) && hasKv) placement.evict(trajectory, from)
    if (member.engine !== step.engine) {
      if (member.engine !== null) placement.takeOff(member)
      placement.put(member, step.engine, 0)
    }
    if (step.kind === 'place') {
      placement.enqueue(member, 'placed')
      return
    }
    if (step.opensWave) placement.states.get(step.engine)!.wave = member.wave
    placement.start(member, step.engine)
    assignments.push({ trajectory, engine: step.engine, order, movedFrom: moves ? from : null })
  }

  /** Returns the scheduler's record of a trajectory whose waiting turn a policy has seen in the view. */
  private memberOf(turn: WaitingTurn): Member {
    return this.placement.members.get(turn.trajectory)!
  }
}
