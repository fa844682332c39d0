/** The recipe's evaluations: during a run, on problems that are never trained on. */
import { z } from 'zod'
import { count, positive } from './numbers'
import { limitsOverride } from './rollout'

export const evaluationSection = z.strictObject({
  problems: count.default(0),
  samples: positive.default(1),
  /** Overrides of the recipe's limits; the context may be longer than in training. */
  limits: limitsOverride.optional(),
  temperature: z.number().nonnegative().default(0.6),
  /**
   * Number of steps between two evaluations. 0: only two evaluations, before the first and after the last step; a run with
   * a number above 0 makes these two as well.
   */
  every: count.default(0),
})
