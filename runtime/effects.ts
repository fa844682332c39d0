/**
 * Time, randomness and ids: the source of them for code that takes a run's decisions. Behaviours get an `Effects`, so
 * that a replay can provide its own.
 * Invariant: a value that matters for a decision is recorded in a fact; values from here may differ in a replay.
 */
import { createHash, randomUUID } from 'node:crypto'

export interface Effects {
  /** Current time, ms since 1970. */
  now(): number
  /** Monotonic time in ms, for durations. */
  elapsed(): number
  /** Returns a name that no other call returns. */
  unique(): string
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
  return createHash('sha256').update(parts.join('\u0000')).digest().readUInt32LE(0) & 0x7fffffff
}
