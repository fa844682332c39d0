/**
 * Which engines fail, by what becomes of their turns, by their silence or by their pace: a circuit breaker for each.
 *
 * in   turns that were completed or interrupted, who is silent or slow, who is well again
 * out  who has to rest, and for how long
 * Invariant: an engine rests when its last `limit` turns, of more than one trajectory, ended in errors of the engine, and when
 * it is silent or slow; each rest is twice as long as the one before, until a turn is completed by one of which nothing else is wrong.
 */
import type { TurnCompleted, TurnInterrupted } from '../../messages/facts'
import type { EngineId, TrajectoryId } from '../../messages/ids'

/** What can be wrong with an engine whose turns end well. */
export type Ailment = 'silent' | 'slow'

interface Faults {
  /** In a row. */
  readonly count: number
  readonly trajectories: ReadonlySet<TrajectoryId>
  readonly error: string
  readonly rests: number
  /** It was sent to rest and has not joined again: what its turns come to until then says nothing new. */
  readonly resting: boolean
  /** It rests or has rested for that, and was not seen well since. Not known of an earlier life. */
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
    // Its turns end well, and it will be sent away all the same.
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

/** How long who has rested so many times has to rest, ms. */
export const restAfter = (rests: number): number => Math.min(longestRestMs, firstRestMs * 2 ** rests)

/** How long it has to rest if it is sent to rest now, ms. */
export const restMs = (faults: EngineFaults, engine: EngineId): number => restAfter(faults.get(engine)?.rests ?? 0)

/** Those that have to rest now because their turns fail. */
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

/** It is sent to rest: once, until it joins again. */
export function rested(faults: EngineFaults, engine: EngineId, ailment?: Ailment): EngineFaults {
  const before = faults.get(engine) ?? nothing
  return new Map(faults).set(engine, {
    ...{ ...nothing, rests: before.rests + 1, resting: true },
    ailment: ailment ?? before.ailment,
  })
}

/** Nothing of that is wrong with it now. */
export function recovered(faults: EngineFaults, engine: EngineId, from: Ailment): EngineFaults {
  const before = faults.get(engine)
  return before?.ailment === from ? new Map(faults).set(engine, { ...before, ailment: undefined }) : faults
}

/** It begins anew; how often it has rested stays known, and what for. */
export function joinedAgain(faults: EngineFaults, engine: EngineId): EngineFaults {
  const before = faults.get(engine)
  if (before === undefined) return faults
  return new Map(faults).set(engine, { ...nothing, rests: before.rests, ailment: before.ailment })
}
