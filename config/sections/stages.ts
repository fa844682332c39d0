/**
 * Stages of a run: what each changes, when the next one begins, and of which problems it is made (arXiv 2508.20722 §4.3).
 */
import { z } from 'zod'
import { stepMetric } from './metrics'
import { count, positive } from './numbers'
import { limitsOverride, type limitsSection } from './rollout'

const until = z
  .strictObject({
    /** Length of the stage, steps. */
    steps: positive.optional(),
    /** Alternative to `steps`: a step's metric above or below a bound for a number of steps in a row. */
    metric: stepMetric.optional(),
    above: z.number().optional(),
    below: z.number().optional(),
    for: positive.default(1),
  })
  .superRefine((condition, ctx) => {
    const { steps, metric, above, below } = condition
    const refuse = (path: string, message: string) => ctx.addIssue({ code: 'custom', path: [path], message })
    if (steps === undefined && metric === undefined)
      refuse('steps', 'says no end: give steps, or a metric with a bound')
    if (metric !== undefined && above === undefined && below === undefined)
      refuse('metric', 'needs a bound: above or below')
    if (metric === undefined && (above !== undefined || below !== undefined))
      refuse('metric', 'a bound of which metric?')
  })

const problems = z
  .strictObject({
    /** Rollouts of each problem, by the policy that the stage begins with. */
    samples: positive.default(8),
    /** A problem stays in the stage if it was solved at least and at most this often. */
    minSolved: count.default(0),
    maxSolved: count.optional(),
    /** Number of the recipe's problems to measure. Default: all. Required if the problems never end. */
    count: positive.optional(),
  })
  .superRefine(({ samples, minSolved, maxSolved = samples - 1 }, ctx) => {
    const refuse = (path: string, message: string) => ctx.addIssue({ code: 'custom', path: [path], message })
    if (maxSolved > samples) refuse('maxSolved', `cannot be above samples (${samples})`)
    if (minSolved > maxSolved) refuse('minSolved', `leaves no problem: at most ${maxSolved} of ${samples} are wanted`)
    if (minSolved === 0 && maxSolved === samples)
      refuse('maxSolved', 'keeps every problem: nothing would be measured for')
  })

export const stageSection = z.strictObject({
  name: z.string().min(1),
  /** Overrides of the recipe's limits, which are the largest of the run. */
  limits: limitsOverride.optional(),
  /** Keeps only problems that the policy solves sometimes; they are measured when the stage begins. */
  problems: problems.optional(),
  /** End of the stage; absent: it lasts until the run is over. */
  until: until.optional(),
  resetOptimizer: z.boolean().default(false),
  updateReference: z.boolean().default(false),
})

export type StageConfig = z.output<typeof stageSection>

/**
 * Lists contradictions within the stages, or with the recipe's limits or the buffer of `train.overlong`: path and reason.
 */
export function stageFaults(
  stages: readonly StageConfig[],
  limits: z.output<typeof limitsSection>,
  overlongTokens = 0,
): readonly (readonly [readonly (string | number)[], string])[] {
  const faults: (readonly [readonly (string | number)[], string])[] = []
  for (const [at, stage] of stages.entries()) {
    if (stages.findIndex(other => other.name === stage.name) !== at)
      faults.push([[at, 'name'], `'${stage.name}' is the name of a stage before`])
    if (stage.until === undefined && at < stages.length - 1)
      faults.push([[at, 'until'], `'${stage.name}' never ends, and '${stages[at + 1]!.name}' never begins`])
    for (const field of ['contextTokens', 'promptTokens', 'responseTokens'] as const) {
      const own = stage.limits?.[field]
      const most = limits[field] ?? limits.contextTokens
      if (own !== undefined && own > most)
        faults.push([[at, 'limits', field], `${own} is above the run's limits.${field} (${most}); raise that`])
    }
    const written = stage.limits?.responseTokens
    if (written !== undefined && overlongTokens > written) {
      const why = `${written} is below train.overlong.bufferTokens (${overlongTokens}); lower that`
      faults.push([[at, 'limits', 'responseTokens'], why])
    }
  }
  return faults
}
