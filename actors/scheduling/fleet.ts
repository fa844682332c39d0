/**
 * The scheduler's view of the run's engines: which engines are joined, with which weights, and which have to rest.
 *
 * in   engine.joined | left, weights.applied, engine.status, outcomes of turns, time
 * out  engines that accept turns from now on; engines that have to rest, and so leave, each named once
 * Invariant: an engine accepts turns once it has joined, has weights that are new enough for every turn under way, and
 * has given a sign of life (it joined, loaded weights or sent a status) since this scheduler began, because the log may
 * name an engine that died. Silence counts only while this scheduler was running: a suspended process receives nothing.
 */
import type { EngineJoined, EngineLeft, TurnCompleted, TurnInterrupted, WeightsApplied } from '../../messages/facts'
import type { EngineId, PolicyVersion } from '../../messages/ids'
import { ActiveClock } from '../../runtime/activeClock'
import type { Effects } from '../../runtime/effects'
import {
  type Ailment,
  type EngineFaults,
  joinedAgain,
  type Rest,
  recovered,
  rested,
  restMs,
  restsDue,
  seen,
} from './circuitBreaker'
import { type EnginePaces, paced, unpaced } from './pace'

/**
 * Upper bound on the time in ms that a gap between two inputs adds to `#clock`; a longer gap means that the process was
 * suspended.
 */
const longestNapMs = 1000

export class EngineFleet {
  readonly #silentMs: number
  readonly #behindMs: number
  readonly #joined = new Map<EngineId, EngineJoined>()
  readonly #applied = new Map<EngineId, PolicyVersion>()
  readonly #active = new Map<EngineId, PolicyVersion>()
  /** Time in ms, on `#clock` (the scheduler's running time), of the latest sign of life of each engine. */
  readonly #heardAt = new Map<EngineId, number>()
  /** Time on `#clock` since which an engine has lacked weights that turns need and that another engine has. */
  readonly #lateSince = new Map<EngineId, number>()
  readonly #slow = new Map<EngineId, string>()
  #faults: EngineFaults = new Map()
  #paces: EnginePaces = new Map()
  readonly #clock = new ActiveClock(longestNapMs)

  /**
   * Starts with no engine joined.
   * @param silentMs milliseconds without a sign of life after which an engine has to leave
   * @param behindMs milliseconds for which an engine may lack weights that turns need and that another engine has; then
   * it has to leave
   */
  constructor(silentMs: number, behindMs: number) {
    this.#silentMs = silentMs
    this.#behindMs = behindMs
  }

  /** Engines that accept turns, with the policy version that each samples from. */
  get active(): ReadonlyMap<EngineId, PolicyVersion> {
    return this.#active
  }

  hasJoined(engine: EngineId): boolean {
    return this.#joined.has(engine)
  }

  joined(fact: EngineJoined): void {
    this.#faults = joinedAgain(this.#faults, fact.engine)
    this.#joined.set(fact.engine, fact)
  }

  /** Removes an engine; returns true if the engine accepted turns. */
  left({ engine, retryAfterMs }: Pick<EngineLeft, 'engine' | 'retryAfterMs'>): boolean {
    if (retryAfterMs !== undefined && !this.#faults.get(engine)?.resting) {
      this.#faults = rested(this.#faults, engine) // a rest that this scheduler did not decide counts too
    }
    this.#joined.delete(engine)
    this.#applied.delete(engine)
    this.#heardAt.delete(engine)
    this.#lateSince.delete(engine)
    this.#slow.delete(engine)
    this.#paces = unpaced(this.#paces, engine)
    return this.#active.delete(engine)
  }

  /** Records the weights that an engine has loaded; returns false if the engine is not joined. */
  applied({ engine, version }: WeightsApplied): boolean {
    if (!this.#joined.has(engine)) return false
    this.#applied.set(engine, version)
    if (this.#active.has(engine)) this.#active.set(engine, version)
    return true
  }

  turnEnded(fact: TurnCompleted | TurnInterrupted): void {
    const { engine } = fact
    if (!this.#joined.has(engine)) return
    if (fact.type === 'turn.completed') {
      const { paces, verdict } = paced(this.#paces, fact)
      this.#paces = paces
      if (verdict?.isSlow) this.#slow.set(engine, verdict.reason)
      else if (verdict !== undefined) this.#faults = recovered(this.#faults, engine, 'slow')
    }
    this.#faults = seen(this.#faults, fact)
  }

  /**
   * Records a sign of life. Returns the `engine.joined` fact of the engine if this sign makes the engine accept turns,
   * else undefined. @param needed returns the policy version below which an engine gets no turns yet
   */
  heard(engine: EngineId, needed: () => PolicyVersion): EngineJoined | undefined {
    const joined = this.#joined.get(engine)
    if (joined === undefined) return undefined
    this.#heardAt.set(engine, this.#clock.now)
    const version = this.#applied.get(engine)
    if (version === undefined || this.#active.has(engine) || version < needed()) return undefined
    this.#active.set(engine, version)
    return joined
  }

  /** Records that the engine sent an `engine.status`, so it is no longer silent. */
  spoke(engine: EngineId): void {
    this.#faults = recovered(this.#faults, engine, 'silent')
  }

  /** Advances the clock of the scheduler's running time. */
  advance(fx: Pick<Effects, 'now' | 'elapsed'>): void {
    this.#clock.tick(fx)
  }

  /**
   * Sends to rest the joined engines that gave no sign of life for `silentMs` or more of this scheduler's running time,
   * and lists each once; also engines that joined according to the log and have never sent this scheduler anything.
   */
  silent(): readonly Rest[] {
    return [...this.#joined.keys()].flatMap(engine => {
      if (this.#clock.now - (this.#heardAt.get(engine) ?? 0) < this.#silentMs) return []
      this.#heardAt.set(engine, Number.POSITIVE_INFINITY) // the next call does not list the engine again
      return [this.#sentToRest(engine, `it has sent no status for ${this.#silentMs} ms`, 'silent')]
    })
  }

  /**
   * True if at least one engine accepts turns and every engine that does samples from this version or a newer one, so
   * that a turn may go to any of them.
   */
  hasAll(version: PolicyVersion): boolean {
    return this.#active.size > 0 && [...this.#active.values()].every(one => one >= version)
  }

  /**
   * Sends to rest the engines that for `behindMs` have lacked weights which turns needed and an engine that accepts turns
   * had, and lists them. @param version policy version that the turns under way need
   */
  behind(version: PolicyVersion): readonly Rest[] {
    const isThere = [...this.#active.values()].some(one => one >= version)
    return [...this.#applied].flatMap(([engine, one]) => {
      if (one >= version) {
        this.#lateSince.delete(engine)
        return []
      }
      if (!isThere) return []
      const since = this.#lateSince.get(engine) ?? this.#clock.now
      this.#lateSince.set(engine, since)
      if (this.#clock.now - since < this.#behindMs || this.#faults.get(engine)?.resting) return []
      const reason = `it is at version ${one}, and for ${this.#behindMs} ms has lacked weights that turns need and another engine has`
      return [this.#sentToRest(engine, reason)]
    })
  }

  /**
   * Sends to rest the engines whose turns fail one after another, or take far longer than the other engines' turns;
   * lists them.
   */
  unfit(): readonly Rest[] {
    const failing = restsDue(this.#faults)
    for (const { engine } of failing) this.#faults = rested(this.#faults, engine)
    const slow = [...this.#slow].filter(([engine]) => !this.#faults.get(engine)?.resting)
    this.#slow.clear()
    return [...failing, ...slow.map(([engine, reason]) => this.#sentToRest(engine, reason, 'slow'))]
  }

  #sentToRest(engine: EngineId, reason: string, ailment?: Ailment): Rest {
    const retryAfterMs = restMs(this.#faults, engine)
    this.#faults = rested(this.#faults, engine, ailment)
    return { engine, reason, retryAfterMs }
  }
}
