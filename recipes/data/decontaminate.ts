/**
 * Finds problems that share n words in a row with a problem of an evaluation set (decontamination).
 *
 * in   texts of evaluation problems, then the texts to check        out  true for a text that overlaps
 * Invariant: pure. A word is a run of letters and digits, compared without case and in NFKC, so that spacing,
 * punctuation and TeX's braces make no difference. In scripts without blanks between words, every letter is a word. A
 * text of fewer than n words overlaps only with a text of the same words. Source: arXiv 2508.20722 §4.2 (8-grams).
 */

export interface Decontaminator {
  /** Adds an evaluation problem. */
  add(text: string): void
  overlaps(text: string): boolean
  /** Number of evaluation problems added so far. */
  readonly problems: number
}

/**
 * Matches letters of scripts without blanks between words. Hangul is not one: Korean separates words, and all Korean
 * problems share word endings.
 */
const unspaced = ['Han', 'Hiragana', 'Katakana', 'Thai', 'Lao', 'Khmer', 'Myanmar']
  .map(s => `\\p{Script=${s}}`)
  .join('')
const word = new RegExp(`(?=[\\p{L}\\p{N}])[${unspaced}]\\p{M}*|(?:(?![${unspaced}])[\\p{L}\\p{N}])+`, 'gu')

export const wordsOf = (text: string): readonly string[] => text.normalize('NFKC').toLowerCase().match(word) ?? []

export function decontaminator(n: number): Decontaminator {
  const known = new Set<string>()
  let problems = 0
  return {
    get problems() {
      return problems
    },
    add(text) {
      problems++
      for (const gram of gramsOf(text, n)) known.add(gram)
    },
    overlaps(text) {
      for (const gram of gramsOf(text, n)) if (known.has(gram)) return true
      return false
    },
  }
}

function* gramsOf(text: string, n: number): Generator<string> {
  const words = wordsOf(text)
  if (words.length < n) {
    // The prefix `=` marks a whole short text, so that it never equals n words inside a longer text.
    yield `= ${words.join(' ')}`
    return
  }
  for (let at = 0; at + n <= words.length; at++) yield words.slice(at, at + n).join(' ')
}
