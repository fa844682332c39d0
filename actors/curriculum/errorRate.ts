/**
 * Error rate of tool calls: failed calls / calls.
 *
 * in   tool calls and failed tool calls of each rollout        out  the rate, or null
 * Invariant: without any call the rate is null, since 0 would look like an improvement.
 */
interface Calls {
  readonly toolCalls: number
  readonly toolErrors: number
}

/** Failed tool calls of all `rollouts` divided by their tool calls, between 0 and 1; null if they made no call. */
export function errorRate(rollouts: readonly Calls[]): number | null {
  const calls = rollouts.reduce((sum, { toolCalls }) => sum + toolCalls, 0)
  return calls === 0 ? null : rollouts.reduce((sum, { toolErrors }) => sum + toolErrors, 0) / calls
}

/** Returns the error rate as a metric; returns no metric if the rate is null, since metrics are numbers. */
export function errorRateMetric(name: string, rollouts: readonly Calls[]): Readonly<Record<string, number>> {
  const rate = errorRate(rollouts)
  return rate === null ? {} : { [name]: rate }
}
