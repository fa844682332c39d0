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
   * Number of steps between two evaluations. Whatever the number, the run also evaluates before the first and after the
   * last step; 0: only then. Without `problems` it never evaluates.
   */
  every: count.default(0),
})
