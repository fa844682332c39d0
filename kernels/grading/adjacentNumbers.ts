/**
 * Finds two numbers with nothing but a blank between them, such as `4 2`. They are neither a number nor a sum, but
 * math-verify adds them.
 *
 * in   LaTeX        out  true for `4 2` and `4\,2`; false for groups of thousands (`12 345`), mixed numbers (`3 1/2`),
 *      arguments of a command or a power (`\frac 1 2`), and anything else
 * Invariant: linear time, never throws.
 */
const blank = String.raw`(?:\s|~|\\[ ,;:!]|\\q?quad(?![A-Za-z]))`
const pair = new RegExp(String.raw`(?<![\d.,])\d(?:[\d.,]*\d)?(?=(${blank}+)\.?\d)`, 'g')
const groups = new RegExp(String.raw`(?:${blank}\d{3})+(?!\d)`, 'y')
/**
 * Matches a command or sign at the end of a text that takes the next digits as its arguments: `\frac`, `\sqrt`, `^`.
 */
const takesDigits = /(?:[\^_]|\\(?:[cdt]?frac|[dt]?binom|sqrt|log))\s*$/

export function hasAdjacentNumbers(text: string): boolean {
  pair.lastIndex = 0
  for (let found = pair.exec(text); found !== null; found = pair.exec(text)) {
    const [first, blanks] = found as unknown as [string, string]
    groups.lastIndex = pair.lastIndex
    const isWhole = /^\d+$/.test(first)
    const isMixed = isWhole && /^\d+\s*\/\s*\d/.test(text.slice(pair.lastIndex + blanks.length).slice(0, 40))
    const isGrouped = /^[1-9]\d{0,2}$/.test(first) && groups.test(text)
    if (isGrouped) pair.lastIndex = groups.lastIndex
    else if (!isMixed && !takesDigits.test(text.slice(Math.max(0, found.index - 12), found.index))) return true
  }
  return false
}

const blanks = new RegExp(`${blank}+`, 'g')

/** Compares two texts, counting every run of blanks as one blank. True means: the same numbers in the same order. */
export const equalIgnoringBlanks = (a: string, b: string): boolean => a.replace(blanks, ' ') === b.replace(blanks, ' ')
