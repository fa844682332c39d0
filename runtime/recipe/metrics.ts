/** Metrics of a step, by name: what stages and alarms may look at. */
import { distance } from 'fastest-levenshtein'
import { z } from 'zod'

/** Of a step's rollouts (`step.tallied`), and of its update (`step.completed`). */
const stepMetrics = [
  ...['passAt1', 'toolErrorRate', 'toolErrorRateInPositives', 'truncatedShare', 'failedShare', 'rejectedShare'],
  ...['meanTokens', 'meanTurns', 'rollouts'],
  ...['loss', 'gradNorm', 'entropy', 'clipFraction', 'klEngine', 'klReference', 'tisMean', 'tisCapped', 'icepopMasked'],
  ...['trainedTokens', 'sequences', 'lr'],
] as const

export const stepMetric = z.string().superRefine((name, ctx) => {
  if (stepMetrics.includes(name as never)) return
  const nearest = [...stepMetrics].sort((a, b) => distance(name, a) - distance(name, b))[0]!
  ctx.addIssue({
    code: 'custom',
    message: `no metric '${name}', did you mean '${nearest}'? (${stepMetrics.join(', ')})`,
  })
})
