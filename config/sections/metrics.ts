/** Names of a step's metrics, which stages and alarms may refer to. */

import { z } from 'zod'
import { didYouMean } from '../../runtime/settings/nearestName'

/** Metrics of a step's rollouts, turns and trends (`step.tallied`), and of its update (`step.completed`). */
const stepMetrics = [
  ...['passAt1', 'toolErrorRate', 'toolErrorRateInPositives', 'truncatedShare', 'failedShare', 'rejectedShare'],
  ...['equalShare', 'meanTokens', 'meanTurns', 'rollouts', 'disagreeShare', 'deadLetters'],
  ...['preemptionsPerTurn', 'recomputedShare', 'staleness'],
  ...['gradNormRatio', 'meanTokensRatio', 'passAt1Drop', 'toolErrorsDespiteReward', 'evaluationDrop'],
  ...['loss', 'gradNorm', 'entropy', 'clipFraction', 'klEngine', 'klReference', 'tisMean', 'tisCapped', 'icepopMasked'],
  ...['maskedShare', 'maskedSequences', 'updates'],
  ...['trainedTokens', 'sequences', 'lr'],
] as const

export const stepMetric = z.string().superRefine((name, ctx) => {
  if (stepMetrics.includes(name as never)) return
  ctx.addIssue({
    code: 'custom',
    message: `unknown metric '${name}'${didYouMean(name, stepMetrics)} (known: ${stepMetrics.join(', ')})`,
  })
})
