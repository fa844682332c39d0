/**
 * Assigns the keys under which the rows of a long list are drawn, so that a row that scrolls into view reuses the
 * elements of one that scrolls out: changing elements costs the browser less than making them.
 *
 * in   the indices of the visible rows, ascending        out  a key for each
 * Invariant: keys of one drawing differ. A row keeps its key as long as it stays visible, unless more than half of the
 * rows are new: then keys follow the order on screen, so that no element has to move.
 */
export function rowKeys(): (indices: readonly number[]) => readonly number[] {
  let before = new Map<number, number>()
  return indices => {
    const staying = indices.filter(index => before.has(index)).length
    const kept = 2 * staying < indices.length ? new Map<number, number>() : before
    const taken = new Set(indices.flatMap(index => kept.get(index) ?? []))
    let free = 0
    const keys = indices.map(index => {
      const key = kept.get(index)
      if (key !== undefined) return key
      while (taken.has(free)) free++
      return free++
    })
    before = new Map(indices.map((index, i) => [index, keys[i]!]))
    return keys
  }
}
