/**
 * Chooses the columns of a table that fit a terminal, so that no line breaks within a word.
 *
 * in   the widths of the columns, their order of importance, the terminal's width
 * out  for each column whether it is shown
 * Invariant: the first column by `order` is always shown; if the output is no terminal, all are. Columns are two blanks
 * apart.
 */
const apart = 2

/** `order`: indexes of the columns, the most important first. `room`: width of the terminal; undefined: no terminal. */
export function fitColumns(
  widths: readonly number[],
  order: readonly number[],
  room: number | undefined,
): readonly boolean[] {
  let left = room ?? Number.POSITIVE_INFINITY
  const shown = widths.map(() => false)
  for (const [rank, column] of order.entries()) {
    const needed = widths[column]! + (rank === 0 ? 0 : apart)
    if (rank > 0 && needed > left) break // no less important column is shown in place of this one
    left -= needed
    shown[column] = true
  }
  return shown
}

/** Width of a terminal in characters, 80 if it is unknown; undefined for a stream that is no terminal. */
export const roomOf = (stream: NodeJS.WriteStream): number | undefined =>
  stream.isTTY === true ? (stream.columns ?? 80) : undefined
