/**
 * Compares two answers of at most 200 characters as words. math-verify ignores case even in products (`AB` and `ab`).
 *
 * in   two answers
 * out  true: the same words; false: formulas that differ in the case of a product; undefined: neither
 * Case is ignored only in words: inside \text{}, and, in an answer without formula signs, in letters that look like a
 * word. The result is false only if the case differs in a run of two or more letters outside \text{} that is no word,
 * is next to a digit, or follows a backslash.
 * Invariant: linear time, never throws.
 */
import { maxQuantityChars } from './quantityParser'
import { looksLikeWord } from './unitParser'

export function compareWords(a: string, b: string): boolean | undefined {
  if (a.length > maxQuantityChars || b.length > maxQuantityChars) return undefined
  const [left, right] = [withoutTextCommands(a), withoutTextCommands(b)]
  if (left.text.toLowerCase() !== right.text.toLowerCase()) return undefined
  const runs = left.text.split(letters)
  const others = right.text.split(letters)
  const isFormula = /[^\p{L}\p{N}' .:-]/u.test(left.text)
  const differing = runs.flatMap((run, at) => (run === others[at] ? [] : [at]))
  const isText = (at: number) => left.inText.has(at) || right.inText.has(at)
  /** Letters next to a digit belong to a formula, not to a word. */
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

/** Accepts a word written as `East`, `east` or `EAST`; rejects `abc` and `eAst`. */
const isCased = (word: string) => /^(?:\p{Lu}?\p{Ll}+|\p{Lu}+)$/u.test(word) && (isShort(word) || looksLikeWord(word))

/**
 * Returns true if two words count as equal although their case differs. If one of them is all in capitals, they need
 * more than three letters (`ABC` may name points) or must be listed in `short`.
 */
const mayFold = (a: string, b: string) =>
  isCased(a) && isCased(b) && (isShort(a) || a.length > 3 || ![a, b].some(word => /^\p{Lu}+$/u.test(word)))

const [opened, closed] = ['\ue000', '\ue001']

/**
 * Removes \text{…} and similar commands, and replaces each run of blanks and commas by one blank.
 * @returns the text, and the runs of letters that stood inside \text{}, by their index in `text.split(letters)`
 */
function withoutTextCommands(answer: string): { readonly text: string; readonly inText: ReadonlySet<number> } {
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
