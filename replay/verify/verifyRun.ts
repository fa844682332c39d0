/**
 * Verifies a whole run: reads every record of its facts, telemetry and dead letters once.
 *
 * in   a recorded run        out  what the fold accepted, what it ignored, and each problem with its place
 * Invariant: facts that are late, repeated or of a former owner are counted as ignored; they are not problems.
 */
import { createHash } from 'node:crypto'
import type { RecordedRun } from '../log/recordedRun'
import type { Verification } from './verification'
import { verifier } from './verifier'

export interface VerifyOptions {
  /**
   * Share of the trajectories whose turn contexts are rebuilt, 0 to 1. Default 1. A trajectory's id decides whether it
   * is in the sample.
   */
  readonly sample?: number
}

/** Verifies the run. Problems are in the result; the promise is rejected only when the log cannot be read at all. */
export async function verifyRun(recorded: RecordedRun, { sample = 1 }: VerifyOptions = {}): Promise<Verification> {
  const began = performance.now()
  const check = verifier(recorded.run, id => isSampled(id, sample))
  for (const topic of ['runs', 'trajectories', 'learner', 'telemetry'] as const) {
    await recorded.scan(topic, (entry, record) => check.take(entry, record))
  }
  // A dead letter's headers contain all that is checked, so its value is not decoded.
  await recorded.scan('dead-letters', () => {}, check.deadLetter)
  return check.result(recorded.faults, (performance.now() - began) / 1000)
}

function isSampled(id: string, sample: number): boolean {
  if (sample >= 1) return true
  return createHash('sha256').update(id).digest().readUInt32LE(0) / 2 ** 32 < sample
}
