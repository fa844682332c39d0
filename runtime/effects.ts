/**
 * Provides time, timers, randomness and ids to code that takes a run's decisions. Behaviours get an `Effects`, so that
 * a replay can provide its own time and ids, and a rehearsal a clock that runs faster.
 * Invariant: a value that matters for a decision is recorded in a fact; other values of an `Effects` may differ in a
 * replay.
 */
import { hash, randomUUID } from 'node:crypto'

export interface Effects {
  /** Current time, ms since 1970. */
  now(): number
  /** Monotonic time in ms, for durations. */
  elapsed(): number
  /** Returns a name that no other call returns. */
  unique(): string
  /**
   * Calls `run` once, `ms` later on this clock; returns a function that cancels the call. Absent: the clock is the
   * system's, and `afterOn` uses Node's timers.
   */
  readonly after?: (ms: number, run: () => void) => () => void
  /**
   * Calls `run` every `ms` on this clock, until the returned function is called. Absent: `everyOn` uses Node's timers.
   */
  readonly every?: (ms: number, run: () => void) => () => void
}

/** Calls `run` once, `ms` later on the clock of `fx`; returns a function that cancels the call. */
export function afterOn({ after }: Pick<Effects, 'after'>, ms: number, run: () => void): () => void {
  if (after !== undefined) return after(ms, run)
  const timer = setTimeout(run, ms)
  return () => clearTimeout(timer)
}

/** Calls `run` every `ms` on the clock of `fx`, until the returned function is called. */
export function everyOn({ every }: Pick<Effects, 'every'>, ms: number, run: () => void): () => void {
  if (every !== undefined) return every(ms, run)
  const timer = setInterval(run, ms)
  return () => clearInterval(timer)
}

export const systemEffects: Effects = {
  now: () => Date.now(),
  elapsed: () => performance.now(),
  unique: () => randomUUID(),
}

/** Creates effects for tests: a clock that moves only by `advance`, and ids that count up. */
export function manualEffects(start = 0): Effects & { advance(ms: number): void } {
  let time = start
  let ids = 0
  return {
    now: () => time,
    elapsed: () => time,
    unique: () => `id-${ids++}`,
    advance: ms => {
      time += ms
    },
  }
}

/** Derives a seed in [0, 2^31) that depends only on its parts: the run's seed, and the seed's use in the run. */
export function deriveSeed(...parts: readonly (string | number)[]): number {
  return hash('sha256', parts.join('\u0000'), 'buffer').readUInt32LE(0) & 0x7fffffff
}
