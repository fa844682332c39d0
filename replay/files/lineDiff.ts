/**
 * Difference of two texts, line by line, much as `diff -u` prints it.
 *
 * in   two texts
 * out  lines: ' ' in both texts, '-' only in the first, '+' only in the second, '@@' at the start of each hunk, with
 *      the number of its first line in both texts
 * Invariant: pure. Equal lines at both ends are cut off first; the comparison takes time and memory in proportion to
 * the product of the two remaining line counts, and returns undefined if that product is above 1,000,000.
 */
const context = 3
/** Upper bound on the product of the two texts' line counts, after equal lines at both ends are cut off. */
const mostCells = 1_000_000

export function lineDiff(a: string, b: string): readonly string[] | undefined {
  const [left, right] = [linesOf(a), linesOf(b)]
  let start = 0
  while (start < left.length && start < right.length && left[start] === right[start]) start++
  let end = 0
  while (
    end < left.length - start &&
    end < right.length - start &&
    left[left.length - 1 - end] === right[right.length - 1 - end]
  )
    end++
  const middle = editsOf(left.slice(start, left.length - end), right.slice(start, right.length - end))
  if (middle === undefined) return undefined
  const same = (lines: readonly string[]) => lines.map(line => ` ${line}`)
  return hunks([...same(left.slice(0, start)), ...middle, ...same(left.slice(left.length - end))])
}

/** Edits by the longest common subsequence. */
function editsOf(a: readonly string[], b: readonly string[]): readonly string[] | undefined {
  if (a.length * b.length > mostCells) return undefined
  const width = b.length + 1
  const lengths = new Uint32Array((a.length + 1) * width)
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      lengths[i * width + j] =
        a[i] === b[j]
          ? lengths[(i + 1) * width + j + 1]! + 1
          : Math.max(lengths[(i + 1) * width + j]!, lengths[i * width + j + 1]!)
  const edits: string[] = []
  let [i, j] = [0, 0]
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      edits.push(` ${a[i]}`)
      i++
      j++
    } else if (j >= b.length || (i < a.length && lengths[(i + 1) * width + j]! >= lengths[i * width + j + 1]!))
      edits.push(`-${a[i++]}`)
    else edits.push(`+${b[j++]}`)
  }
  return edits
}

/**
 * Leaves out equal lines that are more than `context` lines away from a difference, and puts an `@@` line before each
 * hunk that remains.
 */
function hunks(edits: readonly string[]): readonly string[] {
  const near = edits.map(() => false)
  edits.forEach((edit, at) => {
    if (edit.startsWith(' ')) return
    for (let i = Math.max(0, at - context); i <= Math.min(edits.length - 1, at + context); i++) near[i] = true
  })
  const lines: string[] = []
  let [left, right] = [1, 1]
  edits.forEach((edit, at) => {
    if (near[at]) {
      if (!near[at - 1]) lines.push(`@@ -${left} +${right} @@`)
      lines.push(edit)
    }
    if (!edit.startsWith('+')) left++
    if (!edit.startsWith('-')) right++
  })
  return lines
}

/**
 * Splits a text into lines. A last line that does not end in a line break is marked, as diff(1) does, so that it
 * differs from one that does.
 */
function linesOf(text: string): readonly string[] {
  if (text === '') return []
  const lines = text.split('\n')
  if (lines.at(-1) === '') return lines.slice(0, -1)
  return [...lines.slice(0, -1), `${lines.at(-1)}\n\\ No newline at end of file`]
}
