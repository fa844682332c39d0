/**
 * Trends: compares the metrics of a step with those of the steps before it.
 *
 * in   metrics of the earlier steps, oldest first, and of this step
 * out  metrics: this step's ratios to the median of earlier steps, and comparisons of means over five steps
 * Invariant: pure. A ratio is left out if this step lacks its metric, if fewer than 5 earlier steps have it, or if
 * their median is 0 or less. A comparison is left out if fewer than 10 steps, this one included, have one of its
 * metrics. Only steps that have a metric as a finite number count.
 */
import type { Metrics } from '../../messages/facts'

/** Number of the latest earlier steps that trends are computed from. */
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
 * Returns the highest mean of five values in a row less the mean of the latest five: 0 if the latest five have the
 * highest. Returns undefined for fewer than ten values.
 */
function dropOf(values: readonly number[]): number | undefined {
  if (values.length < 2 * half) return undefined
  const means = Array.from({ length: values.length - half + 1 }, (_, at) => mean(values.slice(at, at + half)))
  return Math.max(...means) - means.at(-1)!
}

/**
 * Compares the means of the latest five values with those of the five values before. If the reward rose and the share
 * of failed tool calls in positive rollouts did not fall, returns the latest mean of that share; else 0. Returns
 * undefined if there are fewer than ten rewards or fewer than ten shares.
 */
function despite(rewards: readonly number[], errors: readonly number[]): number | undefined {
  if (rewards.length < 2 * half || errors.length < 2 * half) return undefined
  const rise = (values: readonly number[]) => mean(values.slice(-half)) - mean(values.slice(-2 * half, -half))
  return rise(rewards) > 0 && rise(errors) >= 0 ? mean(errors.slice(-half)) : 0
}
