/** Returns the `q` quantile (q from 0 to 1) of unsorted values by nearest rank; NaN if there are no values. */
export function quantile(values: readonly number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.max(0, Math.ceil(q * sorted.length - 1e-9) - 1)] ?? Number.NaN
}
