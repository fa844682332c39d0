/** Evaluations during a run, on problems that are never trained on. */
import { z } from 'zod'
import { count, positive } from './numbers'
import { limitsOverride } from './rollout'

export const evaluationSection = z.strictObject({
  problems: count.default(0),
  samples: positive.default(1),
  /** Over the recipe's limits; its context may be longer than that of training. */
  limits: limitsOverride.optional(),
  temperature: z.number().nonnegative().default(0.6),
  /** Steps between evaluations; 0: before the first and after the last step only. */
  every: count.default(0),
})
