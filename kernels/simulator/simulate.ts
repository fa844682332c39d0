/**
 * Simulates a fleet of engines under the same scheduler code that runs live, called as the scheduler actor calls it.
 *
 * in   a trace, an engine model, a number of engines, a policy        out  the measurements that a real run would give
 * Invariant: deterministic, with simulated time only. The scheduler gets all events of one point in time before it
 * decides, and the engines get its decisions before their next step.
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
   * true: vLLM engines admit requests by the start order of their trajectories, oldest first, and preempt the newest
   * first. false: engines queue requests in order of arrival, as SGLang engines always do. Default: true for
   * kv-headroom on vLLM, as in the live system, else false.
   */
  readonly priority?: boolean
  /** Longest context that a recipe would allow, in tokens. Default: the longest context of the trace. */
  readonly boundTokens?: number
  /** Milliseconds between the engines' KV reports. Default 1 s; 0: no reports. */
  readonly statusMs?: number
  /**
   * Weight updates: every `everyMs` all engines pause for `pauseMs` and drop the cache of closed sequences. Default:
   * none.
   */
  readonly weights?: { readonly everyMs: number; readonly pauseMs: number }
  /** true: simulates every step separately. Tests use it to prove that merging steps changes nothing. */
  readonly stepwise?: boolean
  /** Gets each request, turn end and KV report before the scheduler does, and each decision that starts turns. */
  readonly observe?: (event: SchedulerEvent) => void
}

/** Event that the scheduler gets, or its decision, as `observe` sees it. Times count in ms from the first arrival. */
export type SchedulerEvent =
  | { readonly kind: 'asked'; readonly atMs: number; readonly trajectory: string; readonly turn: number }
  | ({ readonly kind: 'ended'; readonly atMs: number; readonly trajectory: string; readonly turn: number } & EndedTurn)
  | { readonly kind: 'status'; readonly atMs: number; readonly engine: EngineId; readonly referencedTokens: number }
  | { readonly kind: 'decided'; readonly atMs: number; readonly assignments: readonly TurnAssignment[] }

export type { SimulationResult } from './tally'

interface Rollout {
  readonly traced: TracedTrajectory
  /** Start order of the trajectory: 0 for the first arrival. */
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

/** Periodic event, such as the engines' KV reports. */
interface Clock {
  readonly periodMs: number
  readonly happens: () => void
  nextMs: number
}

/** Minimum period of reports and of weight updates, ms. A shorter period was probably meant in another unit. */
const shortestPeriodMs = 1

const soonest = (a: Event, b: Event): number => a.atMs - b.atMs || a.number - b.number

/** Simulates a trace to its last token. @throws RangeError on a bad option, or a trace that the engine cannot hold */
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
  /** Event at the end of the batch that runs on each engine. */
  private readonly ends = new Map<EngineId, Event>()
  /** Engines whose batch or pause has ended, or that received a request, since they last scheduled. */
  private readonly changed = new Set<EngineId>()
  private readonly pausedUntil = new Map<EngineId, number>()
  private readonly tally: Tally
  private readonly boundTokens: number
  private readonly priority: boolean
  private nowMs = 0
  private eventsMade = 0
  private readonly clocks: Clock[] = []
  private open: number
  /** Number of turns that were requested and have not ended. */
  private openTurns = 0

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
      // Times count from the first arrival: added to a timestamp, a short step would be lost to rounding.
      this.at(arrivalMs - firstMs, () => this.ask(rollout))
    })
    for (let i = 0; i < options.engines; i++) this.join(engineId(`engine-${i}`))
  }

  run() {
    const { statusMs = 1000, weights } = this.options
    if (statusMs > 0) this.every(statusMs, () => this.report())
    if (weights) this.every(weights.everyMs, () => this.updateWeights(weights.pauseMs))
    for (let next = this.events.peek(); next !== undefined && this.open > 0; next = this.events.peek()) {
      if (this.openTurns === 0) this.skipTo(next.atMs)
      this.nowMs = this.clocks.reduce((soonestMs, { nextMs }) => Math.min(soonestMs, nextMs), next.atMs)
      for (const clock of this.clocks) this.tick(clock)
      while (this.events.peek()?.atMs === this.nowMs) this.events.pop()!.happens()
      this.decide()
      for (const engine of this.changed) this.schedule(engine)
      this.changed.clear()
    }
    if (this.open > 0)
      throw new Error(`the simulation stopped with ${this.open} unfinished trajectories and no further event`)
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

  /** Skips periodic events before `atMs`, except the last of each kind: while no turn is open, they only repeat. */
  private skipTo(atMs: number): void {
    for (const clock of this.clocks) {
      clock.nextMs += Math.max(0, Math.floor((atMs - clock.nextMs) / clock.periodMs)) * clock.periodMs
    }
  }

  /** Lets an engine schedule its requests, and sets the event at the end of its batch. */
  private schedule(engine: EngineId): void {
    const simulated = this.engines.get(engine)!
    const paused = this.pausedUntil.get(engine) ?? 0
    const before = this.ends.get(engine)
    if (before === undefined && paused > this.nowMs) return
    simulated.schedule(this.nowMs)
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
    this.openTurns++
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
    this.openTurns--
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
    if (unfit.length > 0) throw new Error(`the scheduler found no engine that can hold trajectory ${unfit[0]}`)
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

  /** Pauses every engine after its present step. Running sequences keep their KV, as in vLLM's pause with mode keep. */
  private updateWeights(pauseMs: number): void {
    for (const [engine, simulated] of this.engines) {
      if (this.ends.has(engine)) this.schedule(engine)
      const from = this.ends.get(engine)?.atMs ?? this.nowMs
      this.pausedUntil.set(engine, from + pauseMs)
      simulated.clearCache()
      this.at(from + pauseMs, () => this.changed.add(engine))
    }
  }
}

function optionFault(trace: readonly TracedTrajectory[], options: SimulationOptions): string | null {
  const { engines, boundTokens, statusMs = 1000, weights } = options
  if (!Number.isInteger(engines) || engines < 1) return `engines is ${engines}, expected an integer of at least 1`
  if (statusMs !== 0 && !(statusMs >= shortestPeriodMs)) {
    return `statusMs is ${statusMs}, expected ms from ${shortestPeriodMs}, or 0 for never`
  }
  if (weights && !(weights.everyMs >= shortestPeriodMs && weights.pauseMs >= 0)) {
    return `weights come every ${weights.everyMs} ms and pause the engines for ${weights.pauseMs} ms: expected a period of at least ${shortestPeriodMs} ms and a pause of at least 0 ms`
  }
  if (weights && weights.pauseMs >= weights.everyMs) {
    return `weights come every ${weights.everyMs} ms and pause the engines for ${weights.pauseMs} ms: no engine would ever continue; expected a pause shorter than the period`
  }
  if (boundTokens === undefined) return null
  const longer = trace.find(one => finalTokens(one) > boundTokens)
  return longer === undefined
    ? null
    : `trajectory '${longer.trajectoryId}' grows to ${finalTokens(longer)} tokens, over the bound of ${boundTokens}`
}
