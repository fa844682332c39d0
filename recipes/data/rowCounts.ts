/**
 * What became of the rows of a file.
 *
 * in   a row after the other        out  how many there were, were broken (and where the first stand) and were dropped, by reason
 */
export interface RowCounts {
  readonly rows: number
  /** Rows that are not what the set's rows are, by reason, and where the first of them stand. */
  readonly broken: Readonly<Record<string, number>>
  readonly brokenAt: readonly string[]
  /** Rows that were filtered out, by reason. */
  readonly dropped: Readonly<Record<string, number>>
}

const shownPlaces = 5

export function rowCounter() {
  const counts = { rows: 0, broken: {} as Record<string, number>, dropped: {} as Record<string, number> }
  const brokenAt: string[] = []
  return {
    row(): void {
      counts.rows++
    },
    broken(reason: string, place: string): void {
      add(counts.broken, reason, 1)
      if (brokenAt.length < shownPlaces) brokenAt.push(place)
    },
    dropped: (reason: string, n = 1): void => add(counts.dropped, reason, n),
    counts: (): RowCounts => ({ ...counts, brokenAt }),
  }
}

function add(to: Record<string, number>, reason: string, n: number): void {
  if (n > 0) to[reason] = (to[reason] ?? 0) + n
}
