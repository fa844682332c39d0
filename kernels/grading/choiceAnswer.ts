/**
 * Finds the choice that an answer names: `C`, `(C)`, `\text{C}`, `C) carbon dioxide`, or the text of the choice itself.
 *
 * in   the extracted answer, and the choices' texts if they are known
 * out  one letter, or the reason that there is none
 * Invariant: linear time, never throws. An answer that names two letters is refused; after a label such as `B)`, a
 * second letter counts only directly after the label.
 */
import { normalizeUnicode } from './unicodeNormalization'

export type NamedChoice = { readonly letter: string } | { readonly fault: 'none' | 'several' }

const maxChars = 10_000
const fold = (text: string) => normalizeUnicode(text).replace(/\s+/g, ' ').trim().toLowerCase()

/**
 * Returns the letter that an answer names, or the reason why it names none.
 * @param count number of choices, 2 to 26
 * @param texts the choices' texts, A first
 */
export function namedChoice(answer: string, count: number, texts: readonly string[] = []): NamedChoice {
  if (answer.length > maxChars) return { fault: 'none' }
  const bare = unwrapped(normalizeUnicode(answer))
  const isChoice = (letter: string | undefined): letter is string =>
    letter !== undefined && letter >= 'A' && letter <= String.fromCharCode(64 + count)
  const same = texts.flatMap((text, at) => (fold(text) === fold(bare) ? [String.fromCharCode(65 + at)] : []))
  if (same.length === 1 && bare.length > 1) return { letter: same[0]! }
  // In `B) a CO group` the text after the label `B)` belongs to the choice, so its capitals are not labels.
  const label = /^[([{]?\s*([A-Za-z])\s*(?:[)\]}.:]|$)/.exec(bare)
  const letter = label?.[1]?.toUpperCase()
  if (isChoice(letter)) {
    const another = /^\s*(?:and|or|,|\/|&)?\s*\(?([A-Z])\)?\s*(?:[).:,]|$)/.exec(bare.slice(label![0].length))?.[1]
    return isChoice(another) && another !== letter ? { fault: 'several' } : { letter }
  }
  const letters = new Set([...bare.matchAll(singleCapital)].map(found => found[1]!).filter(isChoice))
  if (letters.size === 1) return { letter: [...letters][0]! }
  return { fault: letters.size > 1 ? 'several' : 'none' }
}

/** Matches a single capital letter that labels a choice: not the pronoun `I`, nor the article `A`. */
const singleCapital = /(?<![\p{L}\p{N}\\])(?!I\s+[a-z])(?!A\s+(?!and\b|or\b|is\b)[a-z])([A-Z])(?![\p{L}\p{N}'’])/gu

/** Removes up to six layers of `$…$`, `**…**`, `\text{…}` and the like around the answer. */
function unwrapped(text: string): string {
  let inner = text.trim()
  for (let depth = 0; depth < 6; depth++) {
    const found =
      /^\$+([^$]*)\$+$/.exec(inner)?.[1] ??
      /^\\(?:text|mathrm|mathbf|textbf|mathit|rm|bf)\s*\{([^{}]*)\}\.?$/.exec(inner)?.[1] ??
      /^\*{1,2}([^*]*)\*{1,2}\.?$/.exec(inner)?.[1] ??
      /^\{([^{}]*)\}$/.exec(inner)?.[1]
    if (found === undefined) return inner
    inner = found.trim()
  }
  return inner
}
