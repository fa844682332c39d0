/**
 * Counts the rows of a file by outcome.
 *
 * in   the outcome of each row
 * out  the number of rows, of broken rows (with the positions of the first 5) and of dropped rows
 */
export interface RowCounts {
  readonly rows: number
  /** Number of rows that do not have the set's form, by reason; `brokenAt` has the positions of the first of them. */
  readonly broken: Readonly<Record<string, number>>
  readonly brokenAt: readonly string[]
  /** Number of rows that were filtered out, by reason. */
  readonly dropped: Readonly<Record<string, number>>
}

const maxPlaces = 5

export function rowCounter() {
  const counts = { rows: 0, broken: {} as Record<string, number>, dropped: {} as Record<string, number> }
  const brokenAt: string[] = []
  return {
    row(): void {
      counts.rows++
    },
    broken(reason: string, place: string): void {
      add(counts.broken, reason, 1)
      if (brokenAt.length < maxPlaces) brokenAt.push(place)
    },
    dropped: (reason: string, n = 1): void => add(counts.dropped, reason, n),
    counts: (): RowCounts => ({ ...counts, brokenAt }),
  }
}

function add(to: Record<string, number>, reason: string, n: number): void {
  if (n > 0) to[reason] = (to[reason] ?? 0) + n
}
