/**
 * Error rate of tool calls: failed calls / calls.
 *
 * in   counts of rollouts        out  the rate, or none
 * Invariant: without a call there is no rate, since 0 would look like an improvement.
 */
interface Calls {
  readonly toolCalls: number
  readonly toolErrors: number
}

/** Rate as a share of 1; null if none of these rollouts made a call. */
export function errorRate(rollouts: readonly Calls[]): number | null {
  const calls = rollouts.reduce((sum, { toolCalls }) => sum + toolCalls, 0)
  return calls === 0 ? null : rollouts.reduce((sum, { toolErrors }) => sum + toolErrors, 0) / calls
}

/** The rate as a metric; no metric where there is no rate, since metrics are numbers. */
export function errorRateMetric(name: string, rollouts: readonly Calls[]): Readonly<Record<string, number>> {
  const rate = errorRate(rollouts)
  return rate === null ? {} : { [name]: rate }
}
