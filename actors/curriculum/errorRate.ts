/**
 * Failed tool calls over calls.
 *
 * Where no call was made there is no rate: 0 would look like an improvement.
 */
interface Calls {
  readonly toolCalls: number
  readonly toolErrors: number
}

/** A share of 1; null: none of these rollouts made a call. */
export function errorRate(rollouts: readonly Calls[]): number | null {
  const calls = rollouts.reduce((sum, { toolCalls }) => sum + toolCalls, 0)
  return calls === 0 ? null : rollouts.reduce((sum, { toolErrors }) => sum + toolErrors, 0) / calls
}

/** As metrics have it, which are numbers: without a rate, nothing. */
export function errorRateMetric(name: string, rollouts: readonly Calls[]): Readonly<Record<string, number>> {
  const rate = errorRate(rollouts)
  return rate === null ? {} : { [name]: rate }
}
