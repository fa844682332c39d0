/**
 * Which engines fail, by what becomes of their turns or by their silence: a circuit breaker for each.
 *
 * in   turns that were completed or interrupted, who is silent, who speaks        out  who has to rest, and for how long
 * Invariant: an engine rests when its last `limit` turns, of more than one trajectory, ended in errors of the engine, and
 * when it is silent; each rest is twice as long as the one before, until a turn is completed by one that speaks.
 */
import type { TurnCompleted, TurnInterrupted } from '../messages/facts'
import type { EngineId, TrajectoryId } from '../messages/ids'

interface Faults {
  /** In a row. */
  readonly count: number
  readonly trajectories: ReadonlySet<TrajectoryId>
  readonly error: string
  readonly rests: number
  /** It was sent to rest and has not joined again: what its turns come to until then says nothing new. */
  readonly resting: boolean
  /** It rests or has rested for that, and was not heard since. Not known of an earlier life. */
  readonly isSilent: boolean
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
const nothing: Faults = { count: 0, trajectories: new Set(), error: '', rests: 0, resting: false, isSilent: false }

export function seen(faults: EngineFaults, fact: TurnCompleted | TurnInterrupted): EngineFaults {
  const before = faults.get(fact.engine)
  if (before?.resting) return faults
  if (fact.type === 'turn.completed') {
    if (before === undefined) return faults
    const after = new Map(faults)
    // Its turns end well, and it will be sent away all the same.
    if (before.isSilent) return after.set(fact.engine, { ...nothing, rests: before.rests, isSilent: true })
    after.delete(fact.engine)
    return after
  }
  // A context that is too long is the trajectory's fault; a lost engine has left already.
  if (fact.reason !== 'engine-error') return faults
  const { count, trajectories, rests, isSilent } = before ?? nothing
  return new Map(faults).set(fact.engine, {
    count: count + 1,
    // One trajectory that no engine can take must not cost the fleet its engines, one after another.
    trajectories: trajectories.size > 1 ? trajectories : new Set(trajectories).add(fact.trajectory),
    error: fact.error,
    rests,
    resting: false,
    isSilent,
  })
}

const restMs = (rests: number): number => Math.min(longestRestMs, firstRestMs * 2 ** rests)

/** How long one that is silent has to rest. */
export const silenceMs = (faults: EngineFaults, engine: EngineId): number => restMs(faults.get(engine)?.rests ?? 0)

/** Those that have to rest now. */
export const restsDue = (faults: EngineFaults): readonly Rest[] =>
  [...faults].flatMap(([engine, { count, trajectories, error, rests }]) =>
    count < limit || trajectories.size < 2
      ? []
      : [
          {
            engine,
            reason: `its last ${count} turns failed, the last with: ${error}`,
            retryAfterMs: restMs(rests),
          },
        ],
  )

/** It is sent to rest: once, until it joins again. */
export function rested(faults: EngineFaults, engine: EngineId, isSilent = false): EngineFaults {
  const before = faults.get(engine) ?? nothing
  return new Map(faults).set(engine, {
    ...{ ...nothing, rests: before.rests + 1, resting: true },
    isSilent: isSilent || before.isSilent,
  })
}

/** It says how it is. */
export function spoken(faults: EngineFaults, engine: EngineId): EngineFaults {
  const before = faults.get(engine)
  return before?.isSilent ? new Map(faults).set(engine, { ...before, isSilent: false }) : faults
}

/** It begins anew; how often it has rested stays known, and that it was silent. */
export function joinedAgain(faults: EngineFaults, engine: EngineId): EngineFaults {
  const before = faults.get(engine)
  if (before === undefined) return faults
  return new Map(faults).set(engine, { ...nothing, rests: before.rests, isSilent: before.isSilent })
}
