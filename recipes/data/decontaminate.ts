/**
 * Decontamination: whether a problem shares n words in a row with one of an evaluation set.
 *
 * in   texts of evaluation problems, then texts to look at        out  whether they overlap
 * Invariant: pure. Words are runs of letters and digits, case and form (NFKC) aside, so that spacing, punctuation and TeX's
 * braces hide nothing; in scripts that set no blanks between words every letter is one. A text of fewer than n words overlaps
 * with its equal only.
 * Source: arXiv 2508.20722 §4.2 (8-grams).
 */

export interface Decontaminator {
  /** Adds an evaluation problem. */
  add(text: string): void
  overlaps(text: string): boolean
  readonly problems: number
}

/** Hangul is not among them: Korean parts its words, and its syllables in a row are the endings that all problems share. */
const unparted = ['Han', 'Hiragana', 'Katakana', 'Thai', 'Lao', 'Khmer', 'Myanmar']
  .map(s => `\\p{Script=${s}}`)
  .join('')
const word = new RegExp(`(?=[\\p{L}\\p{N}])[${unparted}]\\p{M}*|(?:(?![${unparted}])[\\p{L}\\p{N}])+`, 'gu')

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
    // Marked: it is a whole text, not a part of a longer one.
    yield `= ${words.join(' ')}`
    return
  }
  for (let at = 0; at + n <= words.length; at++) yield words.slice(at, at + n).join(' ')
}
