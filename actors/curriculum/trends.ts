/**
 * Trends: compares the metrics of a step with those of the steps before it.
 *
 * in   metrics of the earlier steps, oldest first, and of this step
 * out  metrics: this step's ratios to the median of earlier steps, and comparisons of means over five steps
 * Invariant: pure. A ratio is left out if fewer than 5 earlier steps, or not this step, have its metric, or if the
 * median is not above 0. A comparison is left out if fewer than 10 steps have its metrics.
 */
import type { Metrics } from '../../messages/facts'

/** Upper bound on the earlier steps that trends are computed from. */
export const trendSteps = 20
const half = 5

export function trends(before: readonly Metrics[], now: Metrics): Metrics {
  const found: Record<string, number> = {}
  const put = (name: string, value: number | undefined) => {
    if (value !== undefined && Number.isFinite(value)) found[name] = value
  }
  put('gradNormRatio', toMedian(before, now, 'gradNorm'))
  put('meanTokensRatio', toMedian(before, now, 'meanTokens'))
  const rewards = valuesOf([...before, now], 'passAt1')
  put('passAt1Drop', dropOf(rewards))
  put('toolErrorsDespiteReward', despite(rewards, valuesOf([...before, now], 'toolErrorRateInPositives')))
  return found
}

const valuesOf = (steps: readonly Metrics[], name: string): number[] =>
  steps.flatMap(step => (Number.isFinite(step[name]) ? [step[name]!] : []))
const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length

function toMedian(before: readonly Metrics[], now: Metrics, name: string): number | undefined {
  const values = valuesOf(before, name).sort((a, b) => a - b)
  const value = now[name]
  if (value === undefined || values.length < half) return undefined
  const median = values[values.length >> 1]!
  return median > 0 ? value / median : undefined
}

/**
 * Returns the best mean over five steps in a row less the mean of the latest five; 0 if the latest five are the best.
 */
function dropOf(values: readonly number[]): number | undefined {
  if (values.length < 2 * half) return undefined
  const means = Array.from({ length: values.length - half + 1 }, (_, at) => mean(values.slice(at, at + half)))
  return Math.max(...means) - means.at(-1)!
}

/**
 * Compares the latest five steps with the five before: if the reward rose and the share of failed tool calls in
 * positive rollouts did not fall, returns the latest mean of that share; else 0.
 */
function despite(rewards: readonly number[], errors: readonly number[]): number | undefined {
  if (rewards.length < 2 * half || errors.length < 2 * half) return undefined
  const rise = (values: readonly number[]) => mean(values.slice(-half)) - mean(values.slice(-2 * half, -half))
  return rise(rewards) > 0 && rise(errors) >= 0 ? mean(errors.slice(-half)) : 0
}
