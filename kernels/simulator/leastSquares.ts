/**
 * Solves non-negative least squares by trying all subsets of coefficients, for up to about ten coefficients.
 *
 * in   rows of terms and their measured sum, with a weight each        out  coefficients, none negative
 * Solves the unconstrained problem for each of the 2^n subsets of the n coefficients, except (nearly) singular ones,
 * and returns the best of the solutions without a negative coefficient.
 */

/** One equation. x: [coefficients] terms; y: their measured sum. */
export interface Row {
  readonly x: ArrayLike<number>
  readonly y: number
}

/**
 * Returns the coefficients with the least weighted sum of squared errors. @param weights [rows] weight of each error
 */
export function leastSquares(rows: readonly Row[], weights: readonly number[]): readonly number[] {
  const size = rows[0]!.x.length
  const scale = Array.from({ length: size }, (_, i) => rows.reduce((most, { x }) => Math.max(most, x[i]!), 1e-300))
  const gram = Array.from({ length: size }, () => new Array<number>(size).fill(0))
  const right = new Array<number>(size).fill(0)
  for (const [k, { x, y }] of rows.entries()) {
    const weight = weights[k]!
    for (let i = 0; i < size; i++) {
      const scaled = (weight * x[i]!) / scale[i]!
      right[i]! += scaled * y
      for (let j = 0; j < size; j++) gram[i]![j]! += (scaled * x[j]!) / scale[j]!
    }
  }
  let best = new Array<number>(size).fill(0)
  let least = 0
  for (let subset = 1; subset < 1 << size; subset++) {
    const chosen = right.map((_, i) => i).filter(i => (subset >> i) & 1)
    const solution = solve(
      chosen.map(i => chosen.map(j => gram[i]![j]!)),
      chosen.map(i => right[i]!),
    )
    if (solution === null || solution.some(value => value < 0)) continue
    // Squared error of the solution x minus that of all-zero coefficients: −2·xᵀr + xᵀGx (r: `right`, G: `gram`), which
    // is −xᵀr at the solution.
    const error = -solution.reduce((sum, value, k) => sum + value * right[chosen[k]!]!, 0)
    if (error >= least) continue
    least = error
    best = new Array<number>(size).fill(0)
    chosen.forEach((i, k) => {
      best[i] = solution[k]! / scale[i]!
    })
  }
  return best
}

/** Solves a linear system by Gaussian elimination with partial pivoting; null for a (nearly) singular matrix. */
function solve(matrix: readonly (readonly number[])[], right: readonly number[]): readonly number[] | null {
  const n = right.length
  const largest = matrix.reduce((most, row, i) => Math.max(most, row[i]!), 0)
  const rows = matrix.map((row, i) => [...row, right[i]!])
  for (let column = 0; column < n; column++) {
    let pivot = column
    for (let i = column + 1; i < n; i++) {
      if (Math.abs(rows[i]![column]!) > Math.abs(rows[pivot]![column]!)) pivot = i
    }
    if (Math.abs(rows[pivot]![column]!) <= 1e-10 * largest) return null
    ;[rows[column], rows[pivot]] = [rows[pivot]!, rows[column]!]
    for (let i = 0; i < n; i++) {
      if (i === column) continue
      const factor = rows[i]![column]! / rows[column]![column]!
      for (let j = column; j <= n; j++) rows[i]![j]! -= factor * rows[column]![j]!
    }
  }
  return rows.map((row, i) => row[n]! / row[i]!)
}
