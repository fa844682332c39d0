/**
 * Text as IFEval's instructions count it: words, sentences, paragraphs; which language it is in.
 *
 * Invariant: pure and linear; every text has a count.
 */
import { detect } from 'tinyld'

const words = /[\p{L}\p{N}_]+(?:['’-][\p{L}\p{N}_]+)*/gu

export const wordsOf = (text: string): readonly string[] => text.match(words) ?? []

const abbreviations = /\b(?:Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|vs|etc|e\.g|i\.e|a\.m|p\.m|U\.S|No|Inc|Ltd|Co)\./gi

/** A sentence ends at `.`, `!`, `?` (or their like) before a blank, or at the end; abbreviations and decimals do not end one. */
export function countSentences(text: string): number {
  const held = text
    .replace(abbreviations, match => match.replaceAll('.', '\u2024'))
    .replace(/(\d)\.(?=\d)/g, '$1\u2024')
  const pieces = held.split(/[.!?。！？।]+["'”’)\]*]*(?:\s+|$)|\n{2,}/u)
  return pieces.filter(piece => /[\p{L}\p{N}]/u.test(piece)).length
}

/** Parted by `***`, as IFEval's prompts ask for; an empty part between two others makes the count unknown. */
export function starParagraphs(text: string): readonly string[] | undefined {
  const parts = text.split(/\s?\*\*\*\s?/)
  const kept = parts.filter((part, at) => part.trim() !== '' || (at !== 0 && at !== parts.length - 1))
  return kept.some(part => part.trim() === '') ? undefined : kept
}

/** Parted by empty lines. */
export const blankParagraphs = (text: string): readonly string[] =>
  text.split(/\n\n/).filter(part => part.trim() !== '')

/** Two-letter code; undefined for a text that is too short to tell. */
export function languageOf(text: string): string | undefined {
  const letters = text.match(/\p{L}/gu)?.length ?? 0
  return letters < 2 ? undefined : detect(text) || undefined
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
