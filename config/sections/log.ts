/**
 * The run's log: how long command topics keep their records. Facts and telemetry are kept for as long as the run.
 *
 * A command follows from facts, so a dropped one loses nothing: the actor that needs its answer sends it again. The
 * minimum retention, 5 minutes, is far above the time for which a consumer may lag behind.
 */
import { z } from 'zod'
import { positive } from './numbers'

const minute = 60_000

export const logSection = z.strictObject({
  /** Time for which command topics keep a record, ms. Applies to a new run; a resumed one keeps what it began with. */
  commandRetentionMs: positive.min(5 * minute).default(24 * 60 * minute),
})
