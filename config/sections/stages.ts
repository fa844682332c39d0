/**
 * The stages of a run: what each changes, when the next one begins, and which problems it uses (arXiv 2508.20722 §4.3).
 */
import { z } from 'zod'
import { stepMetric } from './metrics'
import { count, positive } from './numbers'
import { limitsOverride, type limitsSection } from './rollout'

const until = z
  .strictObject({
    /** Number of steps after which the stage ends. */
    steps: positive.optional(),
    /**
     * Metric that ends the stage: it ends when this metric is above `above`, or below `below`, in `for` consecutive
     * steps, or after `steps` steps if that comes first.
     */
    metric: stepMetric.optional(),
    above: z.number().optional(),
    below: z.number().optional(),
    for: positive.default(1),
  })
  .superRefine((condition, ctx) => {
    const { steps, metric, above, below } = condition
    const refuse = (path: string, message: string) => ctx.addIssue({ code: 'custom', path: [path], message })
    if (steps === undefined && metric === undefined)
      refuse('steps', 'states no end: give steps, or a metric with a bound')
    if (metric !== undefined && above === undefined && below === undefined)
      refuse('metric', 'needs a bound: above or below')
    if (metric === undefined && (above !== undefined || below !== undefined))
      refuse('metric', 'has a bound but no metric')
  })

const problems = z
  .strictObject({
    /** Number of rollouts with which each problem is measured, sampled by the policy that the stage begins with. */
    samples: positive.default(8),
    /** Lower bound on the number of solved rollouts of a problem that stays in the stage. */
    minSolved: count.default(0),
    /** Upper bound on the number of solved rollouts of a problem that stays in the stage. Default: samples − 1. */
    maxSolved: count.optional(),
    /** Number of the recipe's problems to measure. Default: all. Required if the problems are endless. */
    count: positive.optional(),
  })
  .superRefine(({ samples, minSolved, maxSolved = samples - 1 }, ctx) => {
    const refuse = (path: string, message: string) => ctx.addIssue({ code: 'custom', path: [path], message })
    if (maxSolved > samples) refuse('maxSolved', `cannot be above samples (${samples})`)
    if (minSolved > maxSolved) refuse('minSolved', `leaves no problem: ${minSolved} is above maxSolved (${maxSolved})`)
    if (minSolved === 0 && maxSolved === samples)
      refuse('maxSolved', 'keeps every problem, so there is nothing to measure')
  })

export const stageSection = z.strictObject({
  name: z.string().min(1),
  /**
   * Overrides of the recipe's limits. `contextTokens`, `promptTokens` and `responseTokens` may not exceed the recipe's.
   */
  limits: limitsOverride.optional(),
  /**
   * Keeps only problems that the policy solves `minSolved` to `maxSolved` times; the run measures this before the
   * stage's first step.
   */
  problems: problems.optional(),
  /** End of the stage; absent: the stage lasts until the run is over. */
  until: until.optional(),
  resetOptimizer: z.boolean().default(false),
  updateReference: z.boolean().default(false),
})

export type StageConfig = z.output<typeof stageSection>

/**
 * Lists contradictions of the stages: between two stages, with the recipe's limits, with the buffer of
 * `train.overlong`. Each has a path and a reason.
 */
export function stageFaults(
  stages: readonly StageConfig[],
  limits: z.output<typeof limitsSection>,
  overlongTokens = 0,
): readonly (readonly [readonly (string | number)[], string])[] {
  const faults: (readonly [readonly (string | number)[], string])[] = []
  for (const [at, stage] of stages.entries()) {
    if (stages.findIndex(other => other.name === stage.name) !== at)
      faults.push([[at, 'name'], `'${stage.name}' is already the name of an earlier stage`])
    if (stage.until === undefined && at < stages.length - 1)
      faults.push([[at, 'until'], `the stage '${stage.name}' never ends, so '${stages[at + 1]!.name}' never begins`])
    for (const field of ['contextTokens', 'promptTokens', 'responseTokens'] as const) {
      const own = stage.limits?.[field]
      const bound = limits[field] === undefined ? 'contextTokens' : field
      const most = limits[field] ?? limits.contextTokens
      if (own !== undefined && own > most)
        faults.push([
          [at, 'limits', field],
          `${own} is above the run's limits.${bound} (${most}); lower it, or raise limits.${bound}`,
        ])
    }
    const written = stage.limits?.responseTokens
    if (written !== undefined && overlongTokens > written) {
      const why = `${written} is below train.overlong.bufferTokens (${overlongTokens}); lower the buffer`
      faults.push([[at, 'limits', 'responseTokens'], why])
    }
  }
  return faults
}
