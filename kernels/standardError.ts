/**
 * Returns the standard error of the mean of `values`: their standard deviation, with n − 1, divided by √n; null for
 * fewer than two values.
 */
export function standardError(values: readonly number[]): number | null {
  const n = values.length
  if (n < 2) return null
  const mean = values.reduce((sum, value) => sum + value, 0) / n
  return Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (n - 1) / n)
}
