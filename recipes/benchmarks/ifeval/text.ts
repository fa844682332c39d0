/**
 * Text as IFEval's instructions count it: words, sentences, paragraphs.
 *
 * Invariant: pure and linear; every text has a count. Words and sentences are counted as the published checkers do, which take
 * them from nltk: `\w+` for words, Punkt's rules for sentences.
 */
const words = /[\p{L}\p{N}_]+/gu

/** `don't` and `well-known` are two words each. */
export const wordsOf = (text: string): readonly string[] => text.match(words) ?? []

const tokens = /[\p{L}\p{N}_]+(?:[-./][\p{L}\p{N}_]+)*/gu

/** In capitals only, by nltk's tokens: `WELL-KNOWN` is one. */
export const capitalWordsOf = (text: string): readonly string[] =>
  (text.match(tokens) ?? []).filter(word => /\p{Lu}/u.test(word) && word === word.toUpperCase())

const abbreviations = /\b(?:Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|vs|etc|e\.g|i\.e|a\.m|p\.m|U\.S|No|Inc|Ltd|Co)\./gi

/** A sentence ends at `.`, `!` or `?` before a blank, or at the end, but not at a line's; abbreviations and decimals do not end one. */
export function countSentences(text: string): number {
  const held = text
    .replace(abbreviations, match => match.replaceAll('.', '\u2024'))
    .replace(/(\d)\.(?=\d)/g, '$1\u2024')
  const pieces = held.split(/[.!?]+["'”’)\]*]*(?:\s+|$)/u)
  return pieces.filter(piece => /[\p{L}\p{N}]/u.test(piece)).length
}

/** Parted by `***`, as IFEval's prompts ask for; an empty part between two others makes the count unknown. */
export function starParagraphs(text: string): readonly string[] | undefined {
  const parts = text.split(/\s?\*\*\*\s?/)
  const kept = parts.filter((part, at) => part.trim() !== '' || (at !== 0 && at !== parts.length - 1))
  return kept.some(part => part.trim() === '') ? undefined : kept
}

/** How often a text occurs in another, as whole words or not, in any case. */
export function occurrences(text: string, phrase: string): number {
  if (phrase === '') return 0
  return text.toLowerCase().split(phrase.toLowerCase()).length - 1
}

/** How often it occurs where no letter or digit adjoins it. */
export function wholeOccurrences(text: string, phrase: string): number {
  const escaped = phrase.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
  return text.match(new RegExp(`(?<![\\p{L}\\p{N}_])${escaped}(?![\\p{L}\\p{N}_])`, 'giu'))?.length ?? 0
}
