/**
 * Time, randomness and ids: the only file that asks for them. Behaviours get an `Effects`, so that a replay can answer.
 * Invariant: a value that matters for a decision stands in a fact; what is drawn here may differ in a replay.
 */
import { createHash, randomUUID } from 'node:crypto'

export interface Effects {
  /** ms since 1970. */
  now(): number
  /** Monotonic ms, for durations. */
  elapsed(): number
  /** A name that no other call returns. */
  unique(): string
}

export const systemEffects: Effects = {
  now: () => Date.now(),
  elapsed: () => performance.now(),
  unique: () => randomUUID(),
}

/** Effects for tests: a clock that only moves when told, ids that count. */
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

/** A seed in [0, 2^31) that depends on nothing but its parts: the run's seed, and where in the run it is used. */
export function deriveSeed(...parts: readonly (string | number)[]): number {
  return createHash('sha256').update(parts.join('\u0000')).digest().readUInt32LE(0) & 0x7fffffff
}
