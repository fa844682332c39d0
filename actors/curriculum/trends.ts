/**
 * Metrics of a step against those before it: what one step alone does not show.
 *
 * in   the metrics of the steps before, oldest first, and of this one        out  ratios and differences, as metrics
 * Invariant: pure; a trend for which there are too few steps, or whose metric a step has not, is left out.
 */
import type { Metrics } from '../../messages/facts'

/** Steps that are looked back on. */
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

/** From the best five steps in a row to the latest five. */
function dropOf(values: readonly number[]): number | undefined {
  if (values.length < 2 * half) return undefined
  const means = Array.from({ length: values.length - half + 1 }, (_, at) => mean(values.slice(at, at + half)))
  return Math.max(...means) - means.at(-1)!
}

/** The share of failed calls in positives, while it does not fall and the reward rises; else 0. */
function despite(rewards: readonly number[], errors: readonly number[]): number | undefined {
  if (rewards.length < 2 * half || errors.length < 2 * half) return undefined
  const rise = (values: readonly number[]) => mean(values.slice(-half)) - mean(values.slice(-2 * half, -half))
  return rise(rewards) > 0 && rise(errors) >= 0 ? mean(errors.slice(-half)) : 0
}
