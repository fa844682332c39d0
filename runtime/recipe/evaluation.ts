/** Evaluations during a run, on problems that are never trained on. */
import { z } from 'zod'
import { count, positive } from './numbers'

export const evaluationSection = z.strictObject({
  problems: count.default(0),
  samples: positive.default(1),
  temperature: z.number().nonnegative().default(0.6),
  /** Steps between evaluations; 0: before the first and after the last step only. */
  every: count.default(0),
})
