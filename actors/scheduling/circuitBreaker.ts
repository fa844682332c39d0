/**
 * Circuit breaker for each engine: opens when the engine's turns fail one after another, or when fleet.ts sends the
 * engine to rest (it is silent, slow, or without the newest weights).
 *
 * in   turns completed or interrupted, engines sent to rest, engines that recovered
 * out  engines that have to rest (get no turns), and for how long
 * Invariant: an engine rests when its last 5 turns or more, of at least two trajectories, ended in errors of the
 * engine, and when fleet.ts says so. Each rest is twice as long as the one before, from 5 s to at most 60 s; a turn
 * that the engine completes while it is neither silent nor slow sets the next rest back to 5 s.
 */
import type { TurnCompleted, TurnInterrupted } from '../../messages/facts'
import type { EngineId, TrajectoryId } from '../../messages/ids'

/** Kind of fault of an engine that does not show as failed turns. */
export type Ailment = 'silent' | 'slow'

interface Faults {
  /** Number of the engine's latest turns in a row that ended in an error of the engine. */
  readonly count: number
  readonly trajectories: ReadonlySet<TrajectoryId>
  readonly error: string
  readonly rests: number
  /**
   * True from the decision that the engine has to rest until the engine joins again. The outcomes of its turns in
   * between are ignored.
   */
  readonly resting: boolean
  /**
   * Fault for which the engine rests or last rested; undefined once the engine was seen without it, and after a
   * scheduler restart.
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
    // The engine's turns succeed, but it is still slow or silent, so its count of rests is kept.
    if (ailment !== undefined) return after.set(fact.engine, { ...nothing, rests, ailment })
    after.delete(fact.engine)
    return after
  }
  // Only engine errors count: a context that is too long or not in a recording is the trajectory's fault, and a lost
  // engine has left already.
  if (fact.reason !== 'engine-error') return faults
  const { count, trajectories, rests, ailment } = before ?? nothing
  return new Map(faults).set(fact.engine, {
    count: count + 1,
    // Failures must come from two trajectories; otherwise one that no engine can generate would open every engine's
    // breaker in turn.
    trajectories: trajectories.size > 1 ? trajectories : new Set(trajectories).add(fact.trajectory),
    error: fact.error,
    rests,
    resting: false,
    ailment,
  })
}

/** Time in ms that an engine rests after `rests` earlier rests: 5 s, doubled each time, at most 60 s. */
export const restAfter = (rests: number): number => Math.min(longestRestMs, firstRestMs * 2 ** rests)

/** Time in ms that the engine has to rest if its rest begins now. */
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

/** Records that the engine has to rest until it joins again. */
export function rested(faults: EngineFaults, engine: EngineId, ailment?: Ailment): EngineFaults {
  const before = faults.get(engine) ?? nothing
  return new Map(faults).set(engine, {
    ...{ ...nothing, rests: before.rests + 1, resting: true },
    ailment: ailment ?? before.ailment,
  })
}

/** Clears the engine's `ailment` if it is `from`; otherwise changes nothing. */
export function recovered(faults: EngineFaults, engine: EngineId, from: Ailment): EngineFaults {
  const before = faults.get(engine)
  return before?.ailment === from ? new Map(faults).set(engine, { ...before, ailment: undefined }) : faults
}

/**
 * Ends the engine's rest when it joins again: forgets its failed turns, but keeps its number of rests and `ailment`.
 */
export function joinedAgain(faults: EngineFaults, engine: EngineId): EngineFaults {
  const before = faults.get(engine)
  if (before === undefined) return faults
  return new Map(faults).set(engine, { ...nothing, rests: before.rests, ailment: before.ailment })
}
