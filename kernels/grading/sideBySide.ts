/**
 * Whether two numbers stand side by side with nothing but a blank between them: no number and no sum, though math-verify adds them.
 *
 * in   LaTeX        out  true for `4 2` and `4\,2`; false for thousands (`12 345`), mixed numbers (`3 1/2`), what a command or a power
 * takes (`\frac 1 2`), and all else
 * Invariant: linear time, never throws.
 */
const blank = String.raw`(?:\s|~|\\[ ,;:!]|\\q?quad(?![A-Za-z]))`
const pair = new RegExp(String.raw`(?<![\d.,])\d(?:[\d.,]*\d)?(?=(${blank}+)\.?\d)`, 'g')
const groups = new RegExp(String.raw`(?:${blank}\d{3})+(?!\d)`, 'y')
/** What takes a digit, or two, as its own. */
const takes = /(?:[\^_]|\\(?:[cdt]?frac|[dt]?binom|sqrt|log))\s*$/

export function areSideBySide(text: string): boolean {
  pair.lastIndex = 0
  for (let found = pair.exec(text); found !== null; found = pair.exec(text)) {
    const [first, blanks] = found as unknown as [string, string]
    groups.lastIndex = pair.lastIndex
    const isWhole = /^\d+$/.test(first)
    const isMixed = isWhole && /^\d+\s*\/\s*\d/.test(text.slice(pair.lastIndex + blanks.length).slice(0, 40))
    const isGrouped = /^[1-9]\d{0,2}$/.test(first) && groups.test(text)
    if (isGrouped) pair.lastIndex = groups.lastIndex
    else if (!isMixed && !takes.test(text.slice(Math.max(0, found.index - 12), found.index))) return true
  }
  return false
}

const blanks = new RegExp(`${blank}+`, 'g')

/** The same numbers, side by side in the same order. */
export const areSameBesideBlanks = (a: string, b: string): boolean => a.replace(blanks, ' ') === b.replace(blanks, ' ')
