/**
 * The clock of a rehearsal: simulated time runs faster than real time, but slows down while the plane (this process's
 * actors) is behind.
 *
 * in   the highest speed, how long messages wait for their actors, pulses (calls of a timer every `pulseMs`)
 * out  an Effects (source of time and timers for actors) on simulated time; the lost share of the highest speed
 * Invariant: deadlines, ticks, engines and tools share this clock, so none of them runs ahead of another. A pulse
 * advances the clock by a bounded time, however long the event loop was blocked before it: a busy machine makes the
 * rehearsal longer, but is never the reason why a deadline passes.
 */
import { type Effects, systemEffects } from '../../runtime/effects'

export interface RehearsalClock extends Effects {
  readonly after: NonNullable<Effects['after']>
  readonly every: NonNullable<Effects['every']>
  figures(): ClockFigures
  close(): void
}

export interface ClockFigures {
  readonly simulatedSeconds: number
  readonly realSeconds: number
  /** Highest speed that was allowed, as a multiple of real time. */
  readonly speed: number
  /** Simulated time divided by real time. */
  readonly meanSpeed: number
  /** Share of the highest speed that was lost on average: 1 − meanSpeed / speed. */
  readonly heldShare: number
  /** Longest time in ms by which a pulse was late: the event loop was blocked for that long at most. */
  readonly longestBlockMs: number
}

export interface ClockOptions {
  /** Highest speed, as a multiple of real time. */
  readonly speed: number
  /**
   * Returns the longest real time in ms that a message handled since the last call of this function had waited for its
   * actor. The clock calls it once every `adjustMs`.
   */
  readonly waitMs: () => number
  /** Source of real time in ms. Default: the system's. */
  readonly elapsed?: () => number
  /** Calls `run` every `pulseMs`; returns a function that ends the calls. Default: a system timer. */
  readonly pulse?: (run: () => void) => () => void
}

const pulseMs = 5
/**
 * Upper bound, in ms, on the real time that one pulse counts, so that a blocked event loop does not make simulated time
 * jump. On a busy machine pulses come some 10 ms late without a block.
 */
const longestPulseMs = 100
const adjustMs = 100
/**
 * Simulated time, in ms, that a message may wait for its actor. While messages wait longer, this process's actors are
 * behind and the speed falls; while they wait less than half of it, the speed rises. It is short beside a turn of the
 * paper's lengths, which takes about a minute.
 */
const allowedWaitMs = 1000
/** Factor on the speed, applied every `adjustMs` while messages wait longer than `allowedWaitMs`. */
const slower = 0.7
/** Factor on the speed, applied every `adjustMs` while messages wait less than half of `allowedWaitMs`. */
const faster = 1.15
/** Lower bound on the speed, as a multiple of real time. */
const lowestSpeed = 0.05
/**
 * Minimum real time, in ms, between two ticks of one actor: at high speeds, ticks at their simulated rate would be most
 * of the actors' work.
 */
const leastTickMs = 250

interface Timer {
  readonly run: () => void
  dueMs: number
  /** Simulated period; undefined for a timer that fires once. */
  readonly periodMs: number | undefined
  /** Real time at which the timer was added or last fired. */
  tickedAt: number
}

export function rehearsalClock(options: ClockOptions): RehearsalClock {
  const { speed: highest, waitMs, elapsed = systemEffects.elapsed, pulse = pulses } = options
  const beganAt = systemEffects.now()
  const begin = elapsed()
  const timers = new Set<Timer>()
  let simulatedMs = 0
  let speed = Math.min(1, highest)
  let pulsedAt = begin
  let adjustedAt = begin
  let heldMs = 0
  let longestBlockMs = 0

  function onPulse(): void {
    const now = elapsed()
    const passed = now - pulsedAt
    pulsedAt = now
    longestBlockMs = Math.max(longestBlockMs, passed - pulseMs)
    heldMs += passed * (1 - Math.min(1, (speed * Math.min(passed, longestPulseMs)) / (highest * passed || 1)))
    simulatedMs += speed * Math.min(passed, longestPulseMs)
    if (now - adjustedAt >= adjustMs) {
      adjustedAt = now
      const waitedMs = waitMs() * speed
      if (waitedMs > allowedWaitMs) speed = Math.max(lowestSpeed, speed * slower)
      else if (waitedMs < allowedWaitMs / 2) speed = Math.min(highest, speed * faster)
    }
    fire(now)
  }

  /** Runs the timers that are due, earliest first. */
  function fire(now: number): void {
    const isDue = ({ dueMs, periodMs, tickedAt }: Timer) =>
      dueMs <= simulatedMs && (periodMs === undefined || now - tickedAt >= leastTickMs)
    const due = [...timers].filter(isDue).sort((a, b) => a.dueMs - b.dueMs)
    for (const timer of due) {
      if (!timers.has(timer)) continue // an earlier timer of this pulse cancelled it
      if (timer.periodMs === undefined) timers.delete(timer)
      else {
        timer.dueMs = simulatedMs + timer.periodMs
        timer.tickedAt = now
      }
      timer.run()
    }
  }

  function add(ms: number, run: () => void, periodMs?: number): () => void {
    const timer: Timer = { run, dueMs: simulatedMs + ms, periodMs, tickedAt: elapsed() }
    timers.add(timer)
    return () => void timers.delete(timer)
  }

  const stop = pulse(onPulse)
  return {
    now: () => beganAt + simulatedMs,
    elapsed: () => simulatedMs,
    unique: systemEffects.unique,
    after: (ms, run) => add(ms, run),
    every: (ms, run) => add(ms, run, ms),
    figures() {
      const realMs = Math.max(1, elapsed() - begin)
      return {
        simulatedSeconds: simulatedMs / 1000,
        realSeconds: realMs / 1000,
        speed: highest,
        meanSpeed: simulatedMs / realMs,
        heldShare: heldMs / realMs,
        longestBlockMs: Math.max(0, longestBlockMs),
      }
    },
    close: stop,
  }
}

function pulses(run: () => void): () => void {
  const timer = setInterval(run, pulseMs)
  return () => clearInterval(timer)
}
