/**
 * A fleet of simulated engines under the scheduler that also runs live: no copy of a policy, the same calls in the same
 * order as the scheduler actor makes them.
 *
 * in   a trace, an engine model, how many engines, a policy        out  what a real run of it would have measured
 * Invariant: no clock, no chance: time is the simulation's, and the same input gives the same result. Whatever happens at
 * one time is told to the scheduler before it decides, and its decisions reach the engines before their next step.
 */
import { type EngineId, engineId, type GroupId, type TrajectoryId } from '../../messages/ids'
import type { PolicyName, Scheduler, SchedulerOptions, TurnAssignment } from '../scheduling/contract'
import { Heap, type HeapItem } from '../scheduling/heap'
import { createScheduler } from '../scheduling/scheduler'
import type { EngineModel } from './engineModel'
import type { History } from './sequence'
import { type EndedTurn, SimulatedEngine } from './simulatedEngine'
import { Tally } from './tally'
import { finalTokens, firstArrivalMs, type TracedTrajectory, traceFault } from './trace'

export interface SimulationOptions {
  readonly model: EngineModel
  readonly engines: number
  readonly policy: PolicyName
  readonly scheduler?: SchedulerOptions
  /**
   * Requests carry the start order of their trajectory as their priority, and the engines heed it. Default: as the live
   * system would for this family and policy, that is kv-headroom on vLLM; the other policies have their engines' queues
   * in order of arrival, as the systems that they are taken from.
   */
  readonly priority?: boolean
  /** What a recipe would let a context grow to, tokens. Default: the longest of the trace. */
  readonly boundTokens?: number
  /** Engines report their KV this often. Default 1 s; 0: never. */
  readonly statusMs?: number
  /** New weights come this often, pause every engine for so long, and make what is kept useless. Default: never. */
  readonly weights?: { readonly everyMs: number; readonly pauseMs: number }
  /** Takes every step by itself, for checking that taking many as one changes nothing. */
  readonly stepwise?: boolean
  /** Sees every call of the scheduler, before it is made; for comparing with a live one. */
  readonly observe?: (event: SchedulerEvent) => void
}

/** Times are from the first arrival on. */
export type SchedulerEvent =
  | { readonly kind: 'asked'; readonly atMs: number; readonly trajectory: string; readonly turn: number }
  | ({ readonly kind: 'ended'; readonly atMs: number; readonly trajectory: string; readonly turn: number } & EndedTurn)
  | { readonly kind: 'status'; readonly atMs: number; readonly engine: EngineId; readonly referencedTokens: number }
  | { readonly kind: 'decided'; readonly atMs: number; readonly assignments: readonly TurnAssignment[] }

export type { SimulationResult } from './tally'

interface Rollout {
  readonly traced: TracedTrajectory
  /** Start order. */
  readonly order: number
  readonly history: History
  turn: number
  contextTokens: number
  askedMs: number
  engine: EngineId | null
}

interface Event extends HeapItem {
  readonly atMs: number
  readonly number: number
  readonly happens: () => unknown
}

/** Happens again and again, whatever else does. */
interface Clock {
  readonly periodMs: number
  readonly happens: () => void
  nextMs: number
}

/** More often than this nothing is reported and no weights come: such a period was not meant in ms. */
const shortestPeriodMs = 1

const soonest = (a: Event, b: Event): number => a.atMs - b.atMs || a.number - b.number

/** @throws RangeError on a trace that the engine cannot hold, or options that are none. */
export function simulate(trace: readonly TracedTrajectory[], options: SimulationOptions) {
  const fault = traceFault(trace, options.model) ?? optionFault(trace, options)
  if (fault !== null) throw new RangeError(fault)
  return new Simulation(trace, options).run()
}

class Simulation {
  private readonly scheduler: Scheduler
  private readonly engines = new Map<EngineId, SimulatedEngine>()
  private readonly rollouts = new Map<string, Rollout>()
  private readonly events = new Heap<Event>(soonest)
  /** The end of each engine's batch. */
  private readonly ends = new Map<EngineId, Event>()
  /** Engines whose batch is over, or that were given something. */
  private readonly changed = new Set<EngineId>()
  private readonly pausedUntil = new Map<EngineId, number>()
  private readonly tally: Tally
  private readonly boundTokens: number
  private readonly priority: boolean
  private nowMs = 0
  private eventsMade = 0
  private readonly clocks: Clock[] = []
  private open: number
  /** Turns that were asked for and have not ended. */
  private turnsOut = 0

  constructor(
    trace: readonly TracedTrajectory[],
    private readonly options: SimulationOptions,
  ) {
    const { model, policy } = options
    this.priority = options.priority ?? (policy === 'kv-headroom' && model.family === 'vllm')
    this.boundTokens = options.boundTokens ?? trace.reduce((most, one) => Math.max(most, finalTokens(one)), 1)
    this.scheduler = createScheduler(policy, options.scheduler)
    this.open = trace.length
    this.tally = new Tally(trace.length)
    const firstMs = firstArrivalMs(trace)
    const byArrival = trace.map((traced, line) => ({ traced, line }))
    byArrival.sort((a, b) => a.traced.arrivalMs - b.traced.arrivalMs || a.line - b.line)
    byArrival.forEach(({ traced }, order) => {
      const history = { computedTokens: 0 }
      const { trajectoryId, promptTokens, arrivalMs } = traced
      const rollout = { traced, order, history, turn: 0, contextTokens: promptTokens, askedMs: 0, engine: null }
      this.rollouts.set(trajectoryId, rollout)
      // From the first arrival on: small numbers, so that a short step is not lost in the sum with a date.
      this.at(arrivalMs - firstMs, () => this.ask(rollout))
    })
    for (let i = 0; i < options.engines; i++) this.join(engineId(`engine-${i}`))
  }

  run() {
    const { statusMs = 1000, weights } = this.options
    if (statusMs > 0) this.every(statusMs, () => this.report())
    if (weights) this.every(weights.everyMs, () => this.takeWeights(weights.pauseMs))
    for (let next = this.events.peek(); next !== undefined && this.open > 0; next = this.events.peek()) {
      if (this.turnsOut === 0) this.skipTo(next.atMs)
      this.nowMs = this.clocks.reduce((soonestMs, { nextMs }) => Math.min(soonestMs, nextMs), next.atMs)
      for (const clock of this.clocks) this.tick(clock)
      while (this.events.peek()?.atMs === this.nowMs) this.events.pop()!.happens()
      this.decide()
      for (const engine of this.changed) this.look(engine)
      this.changed.clear()
    }
    if (this.open > 0) throw new Error(`${this.open} trajectories wait for ever`)
    return this.tally.result(this.options.policy, [...this.engines.values()], this.nowMs)
  }

  private join(engine: EngineId): void {
    const { model } = this.options
    const { kvTokens, blockTokens, maxSequences, prefixSharing } = model
    this.engines.set(engine, new SimulatedEngine(model, this.priority, this.options.stepwise))
    const contextTokens = Math.max(kvTokens, this.boundTokens) + 1
    const prioritySign = this.priority && model.family === 'vllm' ? -1 : 0
    this.scheduler.engineJoined({
      engine,
      kvTokens,
      blockTokens,
      maxSequences,
      contextTokens,
      prefixSharing,
      prioritySign,
    })
  }

  private at(atMs: number, happens: () => unknown): Event {
    const event: Event = { atMs, number: this.eventsMade++, happens, heapIndex: -1 }
    this.events.push(event)
    return event
  }

  private every(periodMs: number, happens: () => void): void {
    this.clocks.push({ periodMs, happens, nextMs: this.nowMs + periodMs })
  }

  private tick(clock: Clock): void {
    if (clock.nextMs !== this.nowMs) return
    clock.happens()
    clock.nextMs += clock.periodMs
  }

  /** While no turn is out, each tick of a clock says what the one before said: the last one before `atMs` is enough. */
  private skipTo(atMs: number): void {
    for (const clock of this.clocks) {
      clock.nextMs += Math.max(0, Math.floor((atMs - clock.nextMs) / clock.periodMs)) * clock.periodMs
    }
  }

  /** Lets an engine see what has come for it, and books the end of its batch. */
  private look(engine: EngineId): void {
    const simulated = this.engines.get(engine)!
    const paused = this.pausedUntil.get(engine) ?? 0
    const before = this.ends.get(engine)
    if (before === undefined && paused > this.nowMs) return
    simulated.look(this.nowMs)
    const { endMs } = simulated
    if (before !== undefined) {
      if (before.atMs === endMs) return
      this.events.remove(before)
      this.ends.delete(engine)
    }
    if (endMs === Number.POSITIVE_INFINITY) return
    this.ends.set(
      engine,
      this.at(endMs, () => this.end(engine, simulated)),
    )
  }

  private end(engine: EngineId, simulated: SimulatedEngine): void {
    this.ends.delete(engine)
    this.changed.add(engine)
    for (const ended of simulated.finish(this.nowMs)) this.turnEnded(ended)
  }

  private ask(rollout: Rollout): void {
    const { traced, turn, order, contextTokens } = rollout
    rollout.askedMs = this.nowMs
    this.turnsOut++
    this.options.observe?.({ kind: 'asked', atMs: this.nowMs, trajectory: traced.trajectoryId, turn })
    this.scheduler.turnAsked({
      trajectory: traced.trajectoryId as TrajectoryId,
      group: traced.groupId as GroupId,
      turn,
      contextTokens,
      promptTokens: traced.promptTokens,
      boundTokens: this.boundTokens,
      order,
      engine: rollout.engine,
    })
  }

  private turnEnded(ended: EndedTurn): void {
    const { request, firstTokenMs } = ended
    const rollout = this.rollouts.get(request.trajectory)!
    const { traced, turn } = rollout
    const trajectory = traced.trajectoryId as TrajectoryId
    this.turnsOut--
    this.tally.turn(request, rollout.askedMs, firstTokenMs, this.nowMs)
    this.options.observe?.({ kind: 'ended', atMs: this.nowMs, trajectory, turn, ...ended })
    rollout.contextTokens += request.newTokens
    this.scheduler.turnEnded(trajectory, rollout.contextTokens, this.nowMs)
    if (turn === traced.turns.length - 1) {
      this.scheduler.trajectoryReleased(trajectory)
      this.open--
      return
    }
    const { toolMs, toolTokens } = traced.turns[turn]!
    this.at(this.nowMs + toolMs, () => {
      rollout.turn++
      rollout.contextTokens += toolTokens
      this.ask(rollout)
    })
  }

  private decide(): void {
    const { assignments, unfit } = this.scheduler.decide(this.nowMs)
    if (unfit.length > 0) throw new Error(`the scheduler takes ${unfit[0]} for one that no engine could hold`)
    if (assignments.length > 0) this.options.observe?.({ kind: 'decided', atMs: this.nowMs, assignments })
    for (const { trajectory, engine, order, movedFrom } of assignments) {
      const rollout = this.rollouts.get(trajectory)!
      const { traced, turn, contextTokens, history } = rollout
      rollout.engine = engine
      this.tally.started(this.nowMs - rollout.askedMs, movedFrom !== null)
      this.engines.get(engine)!.submit({
        trajectory,
        group: traced.groupId,
        turn,
        promptTokens: traced.promptTokens,
        contextTokens,
        newTokens: traced.turns[turn]!.newTokens,
        maxNewTokens: this.boundTokens - contextTokens,
        order,
        history,
      })
      this.changed.add(engine)
    }
  }

  private report(): void {
    for (const [engine, simulated] of this.engines) {
      const referencedTokens = simulated.referencedTokens(this.nowMs)
      this.options.observe?.({ kind: 'status', atMs: this.nowMs, engine, referencedTokens })
      this.scheduler.engineStatus({ engine, kvTokens: this.options.model.kvTokens, referencedTokens })
    }
  }

  /** Every engine ends its step, waits, and goes on; what its sequences have computed stays, as vLLM's pause with mode keep. */
  private takeWeights(pauseMs: number): void {
    for (const [engine, simulated] of this.engines) {
      if (this.ends.has(engine)) this.look(engine)
      const from = this.ends.get(engine)?.atMs ?? this.nowMs
      this.pausedUntil.set(engine, from + pauseMs)
      simulated.forget()
      this.at(from + pauseMs, () => this.changed.add(engine))
    }
  }
}

function optionFault(trace: readonly TracedTrajectory[], options: SimulationOptions): string | null {
  const { engines, boundTokens, statusMs = 1000, weights } = options
  if (!Number.isInteger(engines) || engines < 1) return `${engines} engines: a whole number from 1`
  if (statusMs !== 0 && !(statusMs >= shortestPeriodMs)) {
    return `statusMs is ${statusMs}: 0 for never, or ms from ${shortestPeriodMs}`
  }
  if (weights && !(weights.everyMs >= shortestPeriodMs && weights.pauseMs >= 0)) {
    return `weights come every ${weights.everyMs} ms and pause ${weights.pauseMs} ms: ms from ${shortestPeriodMs}, and from 0`
  }
  if (weights && weights.pauseMs >= weights.everyMs) {
    return `weights come every ${weights.everyMs} ms and pause the engines for ${weights.pauseMs} ms: no engine would ever go on; the pause must be shorter`
  }
  if (boundTokens === undefined) return null
  const longer = trace.find(one => finalTokens(one) > boundTokens)
  return longer === undefined
    ? null
    : `trajectory '${longer.trajectoryId}' grows to ${finalTokens(longer)} tokens, over the bound of ${boundTokens}`
}
