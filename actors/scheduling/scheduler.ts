/**
 * Scheduler: decides on which engine each turn is generated, and when.
 *
 * in   turn.generate, trajectory.release, engine.status, engine.joined | left | slept | woke, weights.applied,
 *      turn.completed | interrupted, control.obeyed, ticks
 * out  turn.assign, rollout.started at a trajectory's first assignment, trajectory.evict, ledger.status;
 *      turn.interrupted for a context that no engine can take;
 *      engine.left for an engine that is silent, slow, without the weights that turns need, or fails turn after turn,
 *      with turn.interrupted for every turn that ran on it
 * Invariant: a turn is queued only while every engine that accepts turns samples from the turn's oldest allowed policy
 * version or a newer one; until then it waits aside (`early`). A turn goes only to engines that have sent a sign of life
 * since this scheduler began. No turn is assigned to any engine while one of them sleeps, or while the run is paused.
 * The state is soft: a new scheduler learns the engines from the log and from their status, and the turns from the
 * coordinators, which ask again. The queue and the ledger (the account of each engine's KV cache) are mutable
 * objects, so an earlier state changes with them.
 */
import { createScheduler, type PolicyName, type Scheduler } from '../../kernels'
import type { Command, EngineStatus, GenerateTurn, ReleaseTrajectory } from '../../messages/commands'
import type { EngineLeft, Fact, TurnInterrupted } from '../../messages/facts'
import { type EngineId, groupOf, type PolicyVersion, policyVersion, type TrajectoryId } from '../../messages/ids'
import type { Effects } from '../../runtime/effects'
import type { Decision, Reactive } from '../../runtime/host/behaviour'
import { pausedAfter } from '../ownership/orders'
import type { Rest } from './circuitBreaker'
import { EngineFleet } from './fleet'

export interface SchedulerState {
  readonly scheduler: Scheduler
  /** Latest request of each trajectory that is under way. */
  readonly requests: Map<TrajectoryId, GenerateTurn>
  /** Trajectories that are under way and that this scheduler has assigned at least once. */
  readonly started: Set<TrajectoryId>
  /**
   * Requests that wait until at least one engine accepts turns and each engine that does has loaded the request's
   * `minVersion` or a newer version.
   */
  readonly early: Map<TrajectoryId, GenerateTurn>
  readonly fleet: EngineFleet
  /**
   * Engines that freed their memory for the trainer. No turn is assigned while one sleeps: they sleep and wake
   * together, and none has a KV cache afterwards.
   */
  readonly asleep: Set<EngineId>
  /**
   * Trajectories whose turn ran on an engine that left, with that engine. `turn.interrupted` is written for them at the
   * next input that is not a tick, so that the coordinators ask again.
   */
  readonly stranded: Map<TrajectoryId, EngineId>
  /** True while a person's pause holds: no turn is assigned; turns that are assigned already continue. */
  readonly paused: boolean
}

export interface SchedulerOptions {
  /**
   * Time in ms without a sign of life after which an engine is removed; engines send a status every second. Default:
   * 15,000.
   */
  readonly silentMs?: number
  /**
   * Time in ms for which an engine may lack weights that turns need and another engine has; then that engine is removed.
   * Default: 60,000.
   */
  readonly behindMs?: number
}

const usualSilentMs = 15_000
const usualBehindMs = 60_000

type SchedulerInput = GenerateTurn | ReleaseTrajectory | EngineStatus

export function scheduler(
  policy: PolicyName,
  { silentMs = usualSilentMs, behindMs = usualBehindMs }: SchedulerOptions = {},
): Reactive<SchedulerState, SchedulerInput> {
  return {
    name: 'scheduler',
    initial: () => ({
      scheduler: createScheduler(policy),
      requests: new Map(),
      started: new Set(),
      early: new Map(),
      fleet: new EngineFleet(silentMs, behindMs),
      asleep: new Set(),
      stranded: new Map(),
      paused: false,
    }),
    evolve(state, fact) {
      switch (fact.type) {
        case 'engine.joined':
          state.asleep.delete(fact.engine)
          leave(state, { engine: fact.engine }) // an engine that joins again has lost its turns and cache
          state.fleet.joined(fact)
          return { ...state }
        case 'engine.left':
          state.asleep.delete(fact.engine)
          leave(state, fact)
          return { ...state }
        case 'engine.slept':
          // The engine may have left while it fell asleep: then assignments do not wait for it.
          if (!state.fleet.hasJoined(fact.engine)) return state
          state.asleep.add(fact.engine)
          return { ...state }
        case 'engine.woke':
          state.asleep.delete(fact.engine)
          return { ...state }
        case 'control.obeyed':
          return { ...state, paused: pausedAfter(state.paused, fact.order) }
        case 'weights.applied':
          state.asleep.delete(fact.engine)
          return state.fleet.applied(fact) ? { ...state } : state
        case 'turn.completed':
        case 'turn.interrupted': {
          state.fleet.turnEnded(fact)
          const request = state.requests.get(fact.trajectory)
          if (request === undefined || request.turn !== fact.turn || request.attempt !== fact.attempt) return state
          state.scheduler.turnEnded(fact.trajectory, request.context.length + fact.tokens.length, fact.at)
          return { ...state }
        }
        default:
          return state
      }
    },
    decide(state, input, fx) {
      state.fleet.advance(fx)
      switch (input.type) {
        case 'turn.generate':
          take(state, input)
          break
        case 'trajectory.release':
          state.requests.delete(input.trajectory)
          state.started.delete(input.trajectory)
          state.early.delete(input.trajectory)
          state.scheduler.trajectoryReleased(input.trajectory, input.outcome !== 'failed')
          break
        case 'engine.status':
          hear(state, input.engine)
          state.fleet.spoke(input.engine)
          state.scheduler.engineStatus(input)
          break
        case 'engine.joined':
          hear(state, input.engine)
          break
        case 'weights.applied':
          hear(state, input.engine)
          takeEarly(state)
          break
        case 'engine.left':
          takeEarly(state)
          break
        case 'tick':
          return withFacts(
            leaving([...state.fleet.silent(), ...state.fleet.unfit(), ...behind(state)], fx),
            assign(state, fx),
          )
      }
      const ended = [...leaving(state.fleet.unfit(), fx), ...interruptStranded(state, fx)]
      const decision = withFacts(ended, assign(state, fx))
      if (input.type !== 'engine.status') return decision
      return { ...decision, commands: [...ledgerStatus(state, input.engine, fx), ...decision.commands] }
    },
    pending: assign,
  }
}

function leave(state: SchedulerState, left: Pick<EngineLeft, 'engine' | 'retryAfterMs'>): void {
  if (!state.fleet.left(left)) return
  // The engine's inference actor may report the interruption too; the first of two answers to an attempt counts.
  const { engine } = left
  for (const trajectory of state.scheduler.engineLeft(engine)) state.stranded.set(trajectory, engine)
}

/**
 * Records a sign of life of an engine. If it has joined and its weights are new enough for every turn under way but the
 * early ones, it accepts turns from now on: queued turns may go to any such engine.
 */
function hear(state: SchedulerState, engine: EngineId): void {
  const { requests, early } = state
  const joined = state.fleet.heard(engine, () => newestNeeded(requests, early))
  if (joined === undefined) return
  state.scheduler.engineJoined(joined)
  takeEarly(state)
}

function takeEarly(state: SchedulerState): void {
  for (const request of [...state.early.values()]) take(state, request)
}

/** Newest of the oldest policy versions that these requests allow, without those in `except`; 0 if there are none. */
function newestNeeded(
  requests: SchedulerState['requests'],
  except: ReadonlyMap<TrajectoryId, unknown> = new Map(),
): PolicyVersion {
  let newest = policyVersion(0)
  for (const [trajectory, { minVersion }] of requests)
    if (minVersion > newest && !except.has(trajectory)) newest = minVersion
  return newest
}

/**
 * Lists engines to remove because they have lacked, for `behindMs`, the newest weights that a turn needs. Early turns
 * wait for all engines that accept turns to load them, but not for ever.
 */
const behind = ({ fleet, requests }: SchedulerState): readonly Rest[] => fleet.behind(newestNeeded(requests))

/**
 * Builds engine.left for engines that have to rest; the process that runs the engine lets it join again after
 * `retryAfterMs`.
 */
const leaving = (rests: readonly Rest[], fx: Effects): Fact[] =>
  rests.map(({ engine, reason, retryAfterMs }) => ({ type: 'engine.left', at: fx.now(), engine, reason, retryAfterMs }))

function interruptStranded(state: SchedulerState, fx: Effects): Fact[] {
  const facts = [...state.stranded].flatMap(([trajectory, engine]) =>
    interrupted(state, trajectory, engine, fx, 'engine-lost', 'the engine left in the middle of the turn'),
  )
  state.stranded.clear()
  return facts
}

/**
 * Reports two differences between the engine's latest status and the scheduler's KV-cache ledger, in tokens.
 * driftTokens: the used tokens of the status less those of the ledger. foreignTokens: the used tokens beyond the
 * expected need of the run's turns, which other clients must use.
 */
function ledgerStatus(state: SchedulerState, engine: EngineId, fx: Effects): readonly Command[] {
  const account = state.scheduler.ledger.engine(engine)
  if (account === undefined) return []
  const { driftTokens, foreignTokens } = account
  return [{ type: 'ledger.status', at: fx.now(), engine, driftTokens, foreignTokens }]
}

const withFacts = (facts: readonly Fact[], decision: Decision): Decision =>
  facts.length === 0 ? decision : { ...decision, facts: [...facts, ...decision.facts] }

/**
 * Records a request for a turn. Hands it to the scheduling policy, or keeps it in `early` while no engine accepts turns
 * or one that does has weights that are too old for it. Ignores a request for an earlier turn, or an earlier attempt of
 * the turn, than the trajectory's latest request.
 */
function take(state: SchedulerState, request: GenerateTurn): void {
  const known = state.requests.get(request.trajectory)
  if (
    known !== undefined &&
    (known.turn > request.turn || (known.turn === request.turn && known.attempt > request.attempt))
  )
    return
  state.requests.set(request.trajectory, request)
  if (!state.fleet.hasAll(request.minVersion)) {
    state.early.set(request.trajectory, request)
    return
  }
  state.early.delete(request.trajectory)
  const { trajectory, turn, promptTokens, boundTokens, order, engine } = request
  const contextTokens = request.context.length
  state.scheduler.turnAsked({
    trajectory,
    group: groupOf(trajectory),
    turn,
    contextTokens,
    promptTokens,
    boundTokens,
    order,
    engine,
  })
}

function assign(state: SchedulerState, fx: Effects): Decision {
  if (state.asleep.size > 0 || state.paused) return { facts: [], commands: [] }
  const { assignments, evictions, unfit } = state.scheduler.decide(fx.now())
  const commands: Command[] = evictions.map(({ trajectory, engine }) => ({
    type: 'trajectory.evict',
    trajectory,
    engine,
  }))
  const started: Fact[] = []
  for (const { trajectory, engine } of assignments) {
    commands.push({ type: 'turn.assign', engine, ask: state.requests.get(trajectory)! })
    if (state.started.has(trajectory)) continue
    state.started.add(trajectory)
    started.push({ type: 'rollout.started', at: fx.now(), trajectory, engine })
  }
  return { facts: [...started, ...unfit.flatMap(trajectory => tooLong(state, trajectory, fx))], commands }
}

function tooLong(state: SchedulerState, trajectory: TrajectoryId, fx: Effects): Fact[] {
  const [engine] = state.fleet.active.keys()
  if (engine === undefined) return []
  const tokens = state.requests.get(trajectory)?.context.length
  return interrupted(state, trajectory, engine, fx, 'too-long', `a context of ${tokens} tokens fits no engine`)
}

function interrupted(
  state: SchedulerState,
  trajectory: TrajectoryId,
  engine: EngineId,
  fx: Effects,
  reason: TurnInterrupted['reason'],
  error: string,
): Fact[] {
  const request = state.requests.get(trajectory)
  if (request === undefined) return []
  const { turn, attempt } = request
  const lost = { tokens: new Int32Array(), logprobs: new Float32Array(), segments: [] }
  return [{ type: 'turn.interrupted', at: fx.now(), trajectory, turn, attempt, engine, ...lost, reason, error }]
}
