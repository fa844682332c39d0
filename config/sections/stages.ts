/** Stages of a run: what changes, when one gives way to the next, and which problems it is made of (arXiv 2508.20722 §4.3). */
import { z } from 'zod'
import { stepMetric } from './metrics'
import { count, positive } from './numbers'
import { limitsOverride, type limitsSection } from './rollout'

const until = z
  .strictObject({
    /** Steps of this stage. */
    steps: positive.optional(),
    /** Or: a step's metric, above or below a bound for so many steps in a row. */
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
    /** A problem stays in the stage that was solved so often, at least and at most. */
    minSolved: count.default(0),
    maxSolved: count.optional(),
    /** How many of the recipe's problems are measured. Default: all. Needed where they do not end. */
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
  /** Over the recipe's own, which are the largest that the run has. */
  limits: limitsOverride.optional(),
  /** Only problems that the policy solves now and then: measured when the stage begins. */
  problems: problems.optional(),
  /** Without, the stage lasts until the run is over. */
  until: until.optional(),
  resetOptimizer: z.boolean().default(false),
  updateReference: z.boolean().default(false),
})

export type StageConfig = z.output<typeof stageSection>

/**
 * What of the stages contradicts itself, the recipe's limits, or the buffer of `train.overlong`: the path within them, and why.
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
