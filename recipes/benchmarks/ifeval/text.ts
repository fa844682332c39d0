/**
 * Counts words, paragraphs and phrases as IFEval's published checkers do; sentences.ts counts sentences.
 *
 * in   a response        out  a count, or its parts
 * Invariant: pure and linear in the text's length; no text makes it throw. The published checkers take words (`\w+`),
 * words in capitals (Treebank tokens) and sentences (Punkt) from nltk.
 */
const words = /[\p{L}\p{N}_]+/gu

/** Returns the words of a text; `don't` and `well-known` are two words each. */
export const wordsOf = (text: string): readonly string[] => text.match(words) ?? []

/**
 * Matches what stands between tokens: blanks, quotation marks, brackets and other marks; a comma or a colon before a
 * digit belongs to the token.
 */
const betweenTokens =
  /(?:[\s;@#$%&?!*()[\]{}<>"“”«»‘’]|[:,](?!\d)|--|\.{2,}|'(?=(?:s|m|d|t|ll|re|ve)?(?![\p{L}\p{N}])))+/iu

/** Returns the tokens whose letters are all capitals. `WELL-KNOWN` is one token, `DON'T` is two. */
export const capitalWordsOf = (text: string): readonly string[] =>
  text.split(betweenTokens).filter(token => /\p{Lu}/u.test(token) && token === token.toUpperCase())

/**
 * Returns the paragraphs between `***`, the mark that IFEval's prompts ask for; undefined if a part between two others
 * is empty.
 */
export function starParagraphs(text: string): readonly string[] | undefined {
  const parts = text.split(/\s?\*\*\*\s?/)
  const kept = parts.filter((part, at) => part.trim() !== '' || (at !== 0 && at !== parts.length - 1))
  return kept.some(part => part.trim() === '') ? undefined : kept
}

/** Counts a phrase in a text, in any case, inside longer words too. */
export function occurrences(text: string, phrase: string): number {
  if (phrase === '') return 0
  return text.toLowerCase().split(phrase.toLowerCase()).length - 1
}

/** Counts a phrase in a text, in any case, where no letter, digit or `_` adjoins it. */
export function wholeOccurrences(text: string, phrase: string): number {
  const escaped = phrase.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
  return text.match(new RegExp(`(?<![\\p{L}\\p{N}_])${escaped}(?![\\p{L}\\p{N}_])`, 'giu'))?.length ?? 0
}
