/**
 * Scheduler: decides on which engine each turn is generated, and when (DESIGN §7).
 *
 * in   turn.generate, trajectory.release, engine.status, engine.joined | left, weights.applied, turn.completed | interrupted
 * out  turn.assign, trajectory.evict; turn.interrupted for a context that no engine can take
 * out  engine.left for one that is silent or fails turn after turn, and turn.interrupted for every turn that ran on an engine that left
 * Invariant: a turn goes only to engines that sample under its oldest allowed policy or a newer one, and that were heard
 * since this scheduler began. What it knows is soft: a scheduler that starts anew learns the engines from the log and from
 * what they say, and the turns from the coordinators, who ask again.
 * The queue and the ledger are a kernel's that changes itself; a state here is a view of it, not a value of its own.
 */
import { createScheduler, type PolicyName, type Scheduler } from '../kernels'
import type { Command, EngineStatus, GenerateTurn, ReleaseTrajectory } from '../messages/commands'
import type { EngineJoined, Fact, TurnInterrupted } from '../messages/facts'
import { type EngineId, groupOf, type TrajectoryId } from '../messages/ids'
import type { Decision, Reactive } from '../runtime/behaviour'
import type { Effects } from '../runtime/effects'
import { type EngineFaults, joinedAgain, rested, restsDue, seen, silenceMs, spoken } from './engineFaults'

export interface SchedulerState {
  readonly scheduler: Scheduler
  /** The latest ask of each trajectory that is under way. */
  readonly asks: Map<TrajectoryId, GenerateTurn>
  /** Asks that wait for newer weights. */
  readonly early: Map<TrajectoryId, GenerateTurn>
  /** Engines that are here and have weights, by the version that they sample under. */
  readonly versions: Map<EngineId, number>
  /** All that have joined. The kernel is told of one when it has weights and was heard: the log may name one that died. */
  readonly joined: Map<EngineId, EngineJoined>
  readonly applied: Map<EngineId, number>
  /** On this scheduler's clock. */
  readonly heardAt: Map<EngineId, number>
  faults: EngineFaults
  /** Turns that ran where nobody is any more: to be interrupted, so that they are asked for again. */
  readonly stranded: Map<TrajectoryId, EngineId>
  /** Time in which this scheduler was awake, ms: when it stood still it heard of nobody. */
  clock: { now: number; readAt: number | undefined }
}

export interface SchedulerOptions {
  /** An engine that says nothing for this long is gone. They speak once a second. Default 15,000. */
  readonly silentMs?: number
}

const usualSilentMs = 15_000
/** Between two inputs, at most so much time counts as time in which an engine could have been heard. */
const longestNapMs = 1000

type SchedulerInput = GenerateTurn | ReleaseTrajectory | EngineStatus

export function scheduler(
  policy: PolicyName,
  { silentMs = usualSilentMs }: SchedulerOptions = {},
): Reactive<SchedulerState, SchedulerInput> {
  return {
    name: 'scheduler',
    initial: () => ({
      scheduler: createScheduler(policy),
      asks: new Map(),
      early: new Map(),
      versions: new Map(),
      joined: new Map(),
      applied: new Map(),
      heardAt: new Map(),
      faults: new Map(),
      stranded: new Map(),
      clock: { now: 0, readAt: undefined },
    }),
    evolve(state, fact) {
      switch (fact.type) {
        case 'engine.joined':
          leave(state, fact.engine) // one that comes again under its name has lost what it had
          state.faults = joinedAgain(state.faults, fact.engine)
          state.joined.set(fact.engine, fact)
          return { ...state }
        case 'engine.left':
          leave(state, fact.engine)
          if (fact.retryAfterMs !== undefined && !state.faults.get(fact.engine)?.resting) {
            state.faults = rested(state.faults, fact.engine) // a refold: it was said by an earlier life
          }
          return { ...state }
        case 'weights.applied':
          if (!state.joined.has(fact.engine)) return state
          state.applied.set(fact.engine, fact.version)
          if (state.versions.has(fact.engine)) state.versions.set(fact.engine, fact.version)
          return { ...state }
        case 'turn.completed':
        case 'turn.interrupted': {
          if (state.joined.has(fact.engine)) state.faults = seen(state.faults, fact)
          const ask = state.asks.get(fact.trajectory)
          if (ask === undefined || ask.turn !== fact.turn || ask.attempt !== fact.attempt) return state
          state.scheduler.turnEnded(fact.trajectory, ask.context.length + fact.tokens.length, fact.at)
          return { ...state }
        }
        default:
          return state
      }
    },
    decide(state, input, fx) {
      advance(state, fx)
      switch (input.type) {
        case 'turn.generate':
          take(state, input)
          break
        case 'trajectory.release':
          state.asks.delete(input.trajectory)
          state.early.delete(input.trajectory)
          state.scheduler.trajectoryReleased(input.trajectory)
          break
        case 'engine.status':
          hear(state, input.engine)
          state.faults = spoken(state.faults, input.engine)
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
          return withFacts(silent(state, fx, silentMs), assign(state, fx))
      }
      return withFacts([...failing(state, fx), ...interruptStranded(state, fx)], assign(state, fx))
    },
    pending: assign,
  }
}

function leave(state: SchedulerState, engine: EngineId): void {
  state.joined.delete(engine)
  state.applied.delete(engine)
  state.heardAt.delete(engine)
  if (!state.versions.delete(engine)) return
  // Its inference actor says so too, if it can: of two answers to an attempt the first counts.
  for (const trajectory of state.scheduler.engineLeft(engine)) state.stranded.set(trajectory, engine)
}

/** Time passes for silence only as far as this scheduler was awake to hear. */
function advance(state: SchedulerState, fx: Effects): void {
  const at = fx.elapsed()
  const { now, readAt } = state.clock
  state.clock = { now: now + Math.min(Math.max(0, at - (readAt ?? at)), longestNapMs), readAt: at }
}

/** One that was heard and has weights takes turns from here on. */
function hear(state: SchedulerState, engine: EngineId): void {
  const joined = state.joined.get(engine)
  if (joined === undefined) return
  state.heardAt.set(engine, state.clock.now)
  const version = state.applied.get(engine)
  if (version === undefined || state.versions.has(engine)) return
  state.versions.set(engine, version)
  state.scheduler.engineJoined(joined)
  takeEarly(state)
}

function takeEarly(state: SchedulerState): void {
  for (const ask of [...state.early.values()]) take(state, ask)
}

/** Once for each that has said nothing for too long, whether the log names it or it was heard. It rests before it comes again. */
function silent(state: SchedulerState, fx: Effects, silentMs: number): Fact[] {
  const facts: Fact[] = []
  for (const engine of state.joined.keys()) {
    const heardAt = state.heardAt.get(engine) ?? 0
    if (state.clock.now - heardAt < silentMs) continue
    state.heardAt.set(engine, Number.POSITIVE_INFINITY) // said; it leaves when the fact comes back
    const reason = `it has said nothing for ${silentMs} ms`
    const retryAfterMs = silenceMs(state.faults, engine)
    state.faults = rested(state.faults, engine, true)
    facts.push({ type: 'engine.left', at: fx.now(), engine, reason, retryAfterMs })
  }
  return facts
}

/** Once for each that fails turn after turn; whoever runs it lets it join again after a while. */
function failing(state: SchedulerState, fx: Effects): Fact[] {
  return restsDue(state.faults).map(({ engine, reason, retryAfterMs }) => {
    state.faults = rested(state.faults, engine)
    return { type: 'engine.left', at: fx.now(), engine, reason, retryAfterMs }
  })
}

function interruptStranded(state: SchedulerState, fx: Effects): Fact[] {
  const facts = [...state.stranded].flatMap(([trajectory, engine]) =>
    interrupted(state, trajectory, engine, fx, 'engine-lost', 'the engine left in the middle of the turn'),
  )
  state.stranded.clear()
  return facts
}

const withFacts = (facts: readonly Fact[], decision: Decision): Decision =>
  facts.length === 0 ? decision : { ...decision, facts: [...facts, ...decision.facts] }

/** An older attempt than the one that is known is a stray. */
function take(state: SchedulerState, ask: GenerateTurn): void {
  const known = state.asks.get(ask.trajectory)
  if (known !== undefined && (known.turn > ask.turn || (known.turn === ask.turn && known.attempt > ask.attempt))) return
  state.asks.set(ask.trajectory, ask)
  if (state.versions.size === 0 || Math.min(...state.versions.values()) < ask.minVersion) {
    state.early.set(ask.trajectory, ask)
    return
  }
  state.early.delete(ask.trajectory)
  const { trajectory, turn, promptTokens, boundTokens, order, engine } = ask
  const contextTokens = ask.context.length
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
  const { assignments, evictions, unfit } = state.scheduler.decide(fx.now())
  const commands: Command[] = evictions.map(({ trajectory, engine }) => ({
    type: 'trajectory.evict',
    trajectory,
    engine,
  }))
  for (const { trajectory, engine } of assignments) {
    commands.push({ type: 'turn.assign', engine, ask: state.asks.get(trajectory)! })
  }
  return { facts: unfit.flatMap(trajectory => tooLong(state, trajectory, fx)), commands }
}

function tooLong(state: SchedulerState, trajectory: TrajectoryId, fx: Effects): Fact[] {
  const [engine] = state.versions.keys()
  if (engine === undefined) return []
  const tokens = state.asks.get(trajectory)?.context.length
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
  const ask = state.asks.get(trajectory)
  if (ask === undefined) return []
  const { turn, attempt } = ask
  const lost = { tokens: new Int32Array(), logprobs: new Float32Array(), segments: [] }
  return [{ type: 'turn.interrupted', at: fx.now(), trajectory, turn, attempt, engine, ...lost, reason, error }]
}
