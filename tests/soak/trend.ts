/**
 * Trend of a series of measurements, robust against outliers: the median of all pairwise slopes, and an interval that holds
 * the true slope in 99.9 % of cases if the points are independent.
 *
 * in   points (hours, value)        out  slope per hour, bounds of its interval
 * Source: Sen, Estimates of the regression coefficient based on Kendall's tau, JASA 63 (1968).
 */
export interface Point {
  readonly hours: number
  readonly value: number
}

export interface Trend {
  /** Change of the value per hour, with its interval. */
  readonly perHour: number
  readonly low: number
  readonly high: number
  /** Change of the value over all of the points' time. */
  readonly growth: number
  readonly median: number
  readonly points: number
}

/** Normal quantile of a two-sided interval of 99.9 %. A soak tests some 30 series, so that 95 % would accuse one in most soaks. */
const quantile = 3.29

/** @throws RangeError for fewer than 8 points, whose interval would be all slopes */
export function trendOf(points: readonly Point[]): Trend {
  const n = points.length
  if (n < 8) throw new RangeError(`a trend needs at least 8 points, there are ${n}`)
  const slopes: number[] = []
  for (let i = 0; i < n; i++) {
    for (let j = i + 1; j < n; j++) {
      slopes.push((points[j]!.value - points[i]!.value) / (points[j]!.hours - points[i]!.hours))
    }
  }
  slopes.sort((a, b) => a - b)
  const spread = quantile * Math.sqrt((n * (n - 1) * (2 * n + 5)) / 18)
  const at = (rank: number) => slopes[Math.min(slopes.length - 1, Math.max(0, Math.round(rank)))]!
  const perHour = middle(slopes)
  return {
    perHour,
    low: at((slopes.length - spread) / 2 - 1),
    high: at((slopes.length + spread) / 2),
    growth: perHour * (points[n - 1]!.hours - points[0]!.hours),
    median: middle(points.map(({ value }) => value).sort((a, b) => a - b)),
    points: n,
  }
}

/**
 * Reduces each `size` consecutive points to one: neighbours depend on one another, and memory goes up and down between
 * garbage collections. An incomplete last block is left out.
 */
export function blocksOf(points: readonly Point[], size: number, reduce: 'least' | 'median'): readonly Point[] {
  const blocks: Point[] = []
  for (let from = 0; from + size <= points.length; from += size) {
    const block = points.slice(from, from + size)
    const values = block.map(({ value }) => value).sort((a, b) => a - b)
    const hours = middle(block.map(point => point.hours))
    blocks.push({ hours, value: reduce === 'least' ? values[0]! : middle(values) })
  }
  return blocks
}

function middle(sorted: readonly number[]): number {
  const half = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[half]! : (sorted[half - 1]! + sorted[half]!) / 2
}
