/**
 * Which of lettered choices an answer names: `C`, `(C)`, `\text{C}`, `C) carbon dioxide`, or the text of the choice itself.
 *
 * in   what stands in the answer's place, and the texts of the choices where they are known        out  one letter, or why none
 * Invariant: linear time, never throws. An answer that names two choices names none.
 */
import { inOneForm } from './unicodeForms'

export type NamedChoice = { readonly letter: string } | { readonly fault: 'none' | 'several' }

const longest = 10_000
const fold = (text: string) => inOneForm(text).replace(/\s+/g, ' ').trim().toLowerCase()

/** `count`: how many choices there are, 2 to 26; `texts`: what they say, A first. */
export function namedChoice(answer: string, count: number, texts: readonly string[] = []): NamedChoice {
  if (answer.length > longest) return { fault: 'none' }
  const bare = unwrapped(inOneForm(answer))
  const isChoice = (letter: string | undefined): letter is string =>
    letter !== undefined && letter >= 'A' && letter <= String.fromCharCode(64 + count)
  const same = texts.flatMap((text, at) => (fold(text) === fold(bare) ? [String.fromCharCode(65 + at)] : []))
  if (same.length === 1 && bare.length > 1) return { letter: same[0]! }
  // `B) a CO group`: what follows a label is the choice's own text, which may have capitals of its own.
  const label = /^[([{]?\s*([A-Za-z])\s*(?:[)\]}.:]|$)/.exec(bare)
  const letter = label?.[1]?.toUpperCase()
  if (isChoice(letter)) {
    const another = /^\s*(?:and|or|,|\/|&)?\s*\(?([A-Z])\)?\s*(?:[).:,]|$)/.exec(bare.slice(label![0].length))?.[1]
    return isChoice(another) && another !== letter ? { fault: 'several' } : { letter }
  }
  const letters = new Set([...bare.matchAll(standing)].map(found => found[1]!).filter(isChoice))
  if (letters.size === 1) return { letter: [...letters][0]! }
  return { fault: letters.size > 1 ? 'several' : 'none' }
}

/** A capital that stands alone, and is neither the pronoun nor the article. */
const standing = /(?<![\p{L}\p{N}\\])(?!I\s+[a-z])(?!A\s+(?!and\b|or\b|is\b)[a-z])([A-Z])(?![\p{L}\p{N}'’])/gu

/** Without `$…$`, `**…**`, `\text{…}` and the like around it. */
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
