/**
 * Scheduler: decides on which engine each turn is generated, and when (DESIGN §7).
 *
 * in   turn.generate, trajectory.release, engine.status, engine.joined | left, weights.applied, turn.completed | interrupted
 * out  turn.assign, trajectory.evict; turn.interrupted for a context that no engine can take
 * Invariant: a turn goes only to engines that sample under its oldest allowed policy or a newer one. What it knows is
 * soft: a scheduler that starts anew learns the engines from the log and the turns from the coordinators, who ask again.
 * The queue and the ledger are a kernel's that changes itself; a state here is a view of it, not a value of its own.
 */
import { createScheduler, type PolicyName, type Scheduler } from '../kernels'
import type { Command, EngineStatus, GenerateTurn, ReleaseTrajectory } from '../messages/commands'
import type { EngineJoined, Fact } from '../messages/facts'
import { type EngineId, groupOf, type TrajectoryId } from '../messages/ids'
import type { Decision, Reactive } from '../runtime/behaviour'
import type { Effects } from '../runtime/effects'

export interface SchedulerState {
  readonly scheduler: Scheduler
  /** The latest ask of each trajectory that is under way. */
  readonly asks: Map<TrajectoryId, GenerateTurn>
  /** Asks that wait for newer weights. */
  readonly early: Map<TrajectoryId, GenerateTurn>
  /** Engines that are here and have weights, by the version that they sample under. */
  readonly versions: Map<EngineId, number>
  /** All that have joined. The kernel is told of one when it has weights. */
  readonly joined: Map<EngineId, EngineJoined>
}

type SchedulerInput = GenerateTurn | ReleaseTrajectory | EngineStatus

export function scheduler(policy: PolicyName): Reactive<SchedulerState, SchedulerInput> {
  return {
    name: 'scheduler',
    initial: () => ({
      scheduler: createScheduler(policy),
      asks: new Map(),
      early: new Map(),
      versions: new Map(),
      joined: new Map(),
    }),
    evolve(state, fact) {
      switch (fact.type) {
        case 'engine.joined':
          leave(state, fact.engine) // one that comes again under its name has lost what it had
          state.joined.set(fact.engine, fact)
          return { ...state }
        case 'engine.left':
          leave(state, fact.engine)
          return { ...state }
        case 'run.resumed':
          // What an earlier process left behind is gone with it.
          for (const engine of [...state.joined.keys()]) leave(state, engine)
          return { ...state }
        case 'weights.applied': {
          const joined = state.joined.get(fact.engine)
          if (joined === undefined) return state
          if (!state.versions.has(fact.engine)) state.scheduler.engineJoined(joined)
          state.versions.set(fact.engine, fact.version)
          return { ...state }
        }
        case 'turn.completed':
        case 'turn.interrupted': {
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
          state.scheduler.engineStatus(input)
          break
        case 'weights.applied':
        case 'engine.left':
          for (const ask of [...state.early.values()]) take(state, ask)
          break
      }
      return assign(state, fx)
    },
    pending: assign,
  }
}

function leave(state: SchedulerState, engine: EngineId): void {
  state.joined.delete(engine)
  if (!state.versions.delete(engine)) return
  // What ran there is asked again by its coordinator, who hears of the loss from the inference actor.
  state.scheduler.engineLeft(engine)
}

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
  const ask = state.asks.get(trajectory)
  const [engine] = state.versions.keys()
  if (ask === undefined || engine === undefined) return []
  const { turn, attempt, context } = ask
  return [
    {
      type: 'turn.interrupted',
      at: fx.now(),
      trajectory,
      turn,
      attempt,
      engine,
      tokens: new Int32Array(),
      logprobs: new Float32Array(),
      segments: [],
      reason: 'too-long',
      error: `a context of ${context.length} tokens fits no engine`,
    },
  ]
}
