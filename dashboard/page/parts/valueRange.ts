/**
 * Range of a chart's value axis.
 *
 * in   the smallest and the largest value; null if there is none        out  the ends of the axis
 * Without a value the axis goes from 0 to 1. Else there is a margin of 8 % of the range on each side, and a flat curve,
 * such as that of a single point, gets a range around its value. Before the margin is added, the range does not leave
 * what the values can be: it begins at 0 or above if all values are at least 0, and ends at 1 or below for shares.
 */
const marginShare = 0.08
/** Half of the range around a flat curve: absolute for a share, as a fraction of the value for other measures. */
const flatHalf = { share: 0.05, part: 0.1 }

export function valueRange(min: number | null, max: number | null, isShare: boolean): [number, number] {
  if (min === null || max === null) return [0, 1]
  const half = min < max ? 0 : isShare ? flatHalf.share : Math.abs(min) * flatHalf.part || 1
  const low = min >= 0 ? Math.max(0, min - half) : min - half
  const high = isShare && max <= 1 ? Math.min(1, max + half) : max + half
  const margin = (high - low) * marginShare
  return [low - margin, high + margin]
}
