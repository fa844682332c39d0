/** The value that a share `q` of the values (in any order) does not exceed, by nearest rank; NaN of none. */
export function quantile(values: readonly number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.max(0, Math.ceil(q * sorted.length - 1e-9) - 1)] ?? Number.NaN
}
