/**
 * Whether two answers are the same words, or the same formula but for case, which math-verify would not notice.
 *
 * in   two answers        out  true: the same words; false: formulas that differ in the case of a product; undefined: neither
 * Invariant: linear time, never throws. Case counts for nothing in words only: in what stands in \text{}, and in what reads like a word.
 */
import { longestPlain } from './plainAnswer'
import { isLikeWord } from './unitNames'

export function sameWords(a: string, b: string): boolean | undefined {
  if (a.length > longestPlain || b.length > longestPlain) return undefined
  const [left, right] = [plain(a), plain(b)]
  if (left.text.toLowerCase() !== right.text.toLowerCase()) return undefined
  const isText = left.isText || right.isText
  const runs = left.text.split(/(\p{L}+)/u)
  const others = right.text.split(/(\p{L}+)/u)
  // A digit makes a formula of the letters at it, and a command's name is none of an answer's words.
  const isFormula = /[^\p{L}\p{N}' .:-]/u.test(left.text)
  const foldable = (at: number) =>
    !isFormula &&
    !/\p{N}$/u.test(runs[at - 1] ?? '') &&
    !/^\p{N}/u.test(runs[at + 1] ?? '') &&
    (isText ? runs[at]!.length > 2 || isShort(runs[at]!) : mayFold(runs[at]!, others[at]!))
  const differing = runs.flatMap((run, at) => (run === others[at] ? [] : [at]))
  if (differing.every(foldable)) return !isFormula && runs.some(run => /^\p{L}{2}/u.test(run)) ? true : undefined
  return differing.some(at => runs[at]!.length > 1) ? false : undefined
}

const short = new Set([
  'yes',
  'no',
  'odd',
  'all',
  'one',
  'two',
  'six',
  'ten',
  'red',
  'or',
  'and',
  'is',
  'of',
  'to',
  'in',
  'at',
])
const isShort = (word: string) => short.has(word.toLowerCase())

/** `East`, `east` and `EAST`; not `abc` and `ABC`, nor `eAst`. */
const mayFold = (a: string, b: string) =>
  [a, b].every(word => /^(?:\p{Lu}?\p{Ll}+|\p{Lu}+)$/u.test(word)) &&
  (isShort(a) || (isLikeWord(a) && (a.length > 3 || ![a, b].some(word => /^\p{Lu}+$/u.test(word)))))

function plain(text: string): { readonly text: string; readonly isText: boolean } {
  const bare = text.replace(/\\(?:text|textbf|textit|mathrm|mbox)\s*\{([^{}]*)\}/g, '$1')
  const spaced = bare
    .replace(/^\$|\$$/g, '')
    .normalize('NFC')
    .replace(/\\[ ,;]/g, ' ')
    .replace(/[\s,]+/g, ' ')
    .trim()
    .replace(/\.$/, '')
  return { text: spaced, isText: bare !== text }
}
