/**
 * Whether two answers are the same words, or the same formula but for case, which math-verify would not notice.
 *
 * in   two answers        out  true: the same words; false: formulas that differ in the case of a product; undefined: neither
 * Invariant: linear time, never throws. Case counts for nothing in words only: in what stands in \text{}, and in what reads like
 * a word beside nothing but words. It is held against an answer only where the letters can be no word.
 */
import { longestPlain } from './plainAnswer'
import { isLikeWord } from './unitNames'

export function sameWords(a: string, b: string): boolean | undefined {
  if (a.length > longestPlain || b.length > longestPlain) return undefined
  const [left, right] = [plain(a), plain(b)]
  if (left.text.toLowerCase() !== right.text.toLowerCase()) return undefined
  const runs = left.text.split(letters)
  const others = right.text.split(letters)
  const isFormula = /[^\p{L}\p{N}' .:-]/u.test(left.text)
  const differing = runs.flatMap((run, at) => (run === others[at] ? [] : [at]))
  const isText = (at: number) => left.inText.has(at) || right.inText.has(at)
  /** A digit makes a formula of the letters at it. */
  const isAtDigit = (at: number) => /\p{N}$/u.test(runs[at - 1] ?? '') || /^\p{N}/u.test(runs[at + 1] ?? '')
  const folds = (at: number) =>
    isText(at) ? runs[at]!.length > 1 : !isFormula && !isAtDigit(at) && mayFold(runs[at]!, others[at]!)
  if (differing.every(folds)) {
    const hasWords = runs.some(run => /^\p{L}{2}/u.test(run))
    return hasWords && (!isFormula || differing.length > 0) ? true : undefined
  }
  const isCommand = (at: number) => runs[at - 1]!.endsWith('\\')
  const isProduct = (at: number) =>
    !isText(at) && runs[at]!.length > 1 && (isAtDigit(at) || isCommand(at) || ![runs[at]!, others[at]!].every(isCased))
  return differing.some(isProduct) ? false : undefined
}

const letters = /(\p{L}+)/u

const short = new Set('yes no odd all one two six ten red or and is of to in at am pm'.split(' '))
const isShort = (word: string) => short.has(word.toLowerCase())

/** `East`, `east` and `EAST`; not `abc`, nor `eAst`. */
const isCased = (word: string) => /^(?:\p{Lu}?\p{Ll}+|\p{Lu}+)$/u.test(word) && (isShort(word) || isLikeWord(word))

/** Three capitals may be points. */
const mayFold = (a: string, b: string) =>
  isCased(a) && isCased(b) && (isShort(a) || a.length > 3 || ![a, b].some(word => /^\p{Lu}+$/u.test(word)))

const [opened, closed] = ['\ue000', '\ue001']

/** Without commands that only set text, blanks and commas as one blank; and which runs of letters, by their place in a split, are set as text. */
function plain(answer: string): { readonly text: string; readonly inText: ReadonlySet<number> } {
  const marked = answer
    .replaceAll(opened, '')
    .replaceAll(closed, '')
    .replace(/\\(?:text|textbf|textit|mathrm|mbox)\s*\{([^{}]*)\}/g, `${opened}$1${closed}`)
    .replace(/^\$|\$$/g, '')
    .normalize('NFC')
    .replace(/\\[ ,;]/g, ' ')
  let text = ''
  let isText = false
  let isBlank = false
  let [run, wasLetter] = [-1, false]
  const inText = new Set<number>()
  for (const sign of marked) {
    if (sign === opened || sign === closed) isText = sign === opened
    else if (/[\s,]/.test(sign)) isBlank = true
    else {
      const isLetter = /\p{L}/u.test(sign)
      if (isBlank && text !== '') text += ' '
      if (isLetter && (isBlank || !wasLetter)) run += 2
      if (isLetter && isText) inText.add(run)
      text += sign
      isBlank = false
      wasLetter = isLetter
    }
  }
  return { text: text.replace(/\.$/, ''), inText }
}
