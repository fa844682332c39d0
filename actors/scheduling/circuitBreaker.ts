/**
 * A circuit breaker for each engine: decides which engines fail, by the outcome of their turns, by silence, or by pace.
 *
 * in   turns completed or interrupted, engines that are silent or slow, engines that recovered
 * out  engines that have to rest (take no turns), and for how long
 * Invariant: an engine rests when its last `limit` turns, of more than one trajectory, ended in errors of the engine, and when
 * it is silent or slow. Each rest is twice as long as the one before, until the engine completes a turn while nothing else is
 * wrong with it.
 */
import type { TurnCompleted, TurnInterrupted } from '../../messages/facts'
import type { EngineId, TrajectoryId } from '../../messages/ids'

/** Faults of an engine whose turns end well. */
export type Ailment = 'silent' | 'slow'

interface Faults {
  /** Failed turns in a row. */
  readonly count: number
  readonly trajectories: ReadonlySet<TrajectoryId>
  readonly error: string
  readonly rests: number
  /** True from the decision to let the engine rest until it joins again; its turns in between are ignored. */
  readonly resting: boolean
  /**
   * The fault that the engine rests or rested for, until it is seen without it. Unknown for an earlier life of the engine.
   */
  readonly ailment: Ailment | undefined
}

export type EngineFaults = ReadonlyMap<EngineId, Faults>

export interface Rest {
  readonly engine: EngineId
  readonly reason: string
  readonly retryAfterMs: number
}

const limit = 5
const firstRestMs = 5000
const longestRestMs = 60_000
const nothing: Faults = { count: 0, trajectories: new Set(), error: '', rests: 0, resting: false, ailment: undefined }

export function seen(faults: EngineFaults, fact: TurnCompleted | TurnInterrupted): EngineFaults {
  const before = faults.get(fact.engine)
  if (before?.resting) return faults
  if (fact.type === 'turn.completed') {
    if (before === undefined) return faults
    const { rests, ailment } = before
    const after = new Map(faults)
    // Its turns end well, yet it is slow or silent, so the breaker keeps its count of rests.
    if (ailment !== undefined) return after.set(fact.engine, { ...nothing, rests, ailment })
    after.delete(fact.engine)
    return after
  }
  // A context that is too long, or not in a recording, is the trajectory's fault; a lost engine has left already.
  if (fact.reason !== 'engine-error') return faults
  const { count, trajectories, rests, ailment } = before ?? nothing
  return new Map(faults).set(fact.engine, {
    count: count + 1,
    // One trajectory that no engine can take must not cost the fleet its engines, one after another.
    trajectories: trajectories.size > 1 ? trajectories : new Set(trajectories).add(fact.trajectory),
    error: fact.error,
    rests,
    resting: false,
    ailment,
  })
}

/** Length of the rest after `rests` earlier ones, ms: 5 s doubled each time, at most 60 s. */
export const restAfter = (rests: number): number => Math.min(longestRestMs, firstRestMs * 2 ** rests)

/** Length of the rest if the engine has to rest now, ms. */
export const restMs = (faults: EngineFaults, engine: EngineId): number => restAfter(faults.get(engine)?.rests ?? 0)

/** Lists the engines that have to rest now because their turns fail. */
export const restsDue = (faults: EngineFaults): readonly Rest[] =>
  [...faults].flatMap(([engine, { count, trajectories, error }]) =>
    count < limit || trajectories.size < 2
      ? []
      : [
          {
            engine,
            reason: `its last ${count} turns failed, the last with: ${error}`,
            retryAfterMs: restMs(faults, engine),
          },
        ],
  )

/** Records that the engine has to rest, once, until it joins again. */
export function rested(faults: EngineFaults, engine: EngineId, ailment?: Ailment): EngineFaults {
  const before = faults.get(engine) ?? nothing
  return new Map(faults).set(engine, {
    ...{ ...nothing, rests: before.rests + 1, resting: true },
    ailment: ailment ?? before.ailment,
  })
}

/** Clears the fault if it is the one that the engine rested for. */
export function recovered(faults: EngineFaults, engine: EngineId, from: Ailment): EngineFaults {
  const before = faults.get(engine)
  return before?.ailment === from ? new Map(faults).set(engine, { ...before, ailment: undefined }) : faults
}

/** Starts the engine's record anew; the number of rests and their fault stay. */
export function joinedAgain(faults: EngineFaults, engine: EngineId): EngineFaults {
  const before = faults.get(engine)
  if (before === undefined) return faults
  return new Map(faults).set(engine, { ...nothing, rests: before.rests, ailment: before.ailment })
}
