/**
 * Which language a text is in, of those that IFEval asks for.
 *
 * in   a text        out  a two-letter code (ISO 639-1)
 * Invariant: pure. tinyld does not know five of IFEval's thirty languages: two have a script of their own, Marathi and Nepali
 * share one with Hindi, and franc, which knows Swahili, is weaker than tinyld at short texts of the others.
 */
import { detect, supportedLanguages, toISO2 } from 'tinyld'

type Franc = (text: string, options?: { readonly only?: readonly string[]; readonly minLength?: number }) => string

/** Scripts of one language of those that are asked for. */
const scripts: readonly (readonly [RegExp, string])[] = [
  [/\p{Script=Gurmukhi}/gu, 'pa'],
  [/\p{Script=Malayalam}/gu, 'ml'],
]
const devanagari = /\p{Script=Devanagari}/gu
const trigrams: Readonly<Record<string, string>> = { hin: 'hi', mar: 'mr', nep: 'ne' }

/** Words that one of the three has, and the others have not: three trigrams of a short text say less. */
const markers: Readonly<Record<string, RegExp>> = {
  hi: /(?<!\p{L}|\p{M})(?:है|हैं|और|में|नहीं|था|थी|थे|का|की|के|को|से|हूँ|यह|वह)(?!\p{L}|\p{M})/gu,
  mr: /(?<!\p{L}|\p{M})(?:आहे|आहेत|आणि|नाही|होते|होता|मी|मला|आम्ही|हे|हा|ही|ते|च्या)(?!\p{L}|\p{M})|ळ/gu,
  ne: /(?<!\p{L}|\p{M})(?:छ|छन्|छु|छौं|छैन|र|हो|हुन्|गर्छ|यो|पनि|मा|लाई)(?!\p{L}|\p{M})|(?:हरू|हरु|लाई)/gu,
}

/** What Swahili is told from. Not from its neighbours, which nobody asks for, and a short text is taken for: tinyld has one. */
const beside = ['swh', ...supportedLanguages.filter(one => one !== 'run')]

/** What can be told from one another. */
export const languages: ReadonlySet<string> = new Set([
  ...supportedLanguages.map(one => toISO2(one)),
  ...scripts.map(([, code]) => code),
  ...Object.values(trigrams),
  'sw',
])

/** Undefined for a text that is too short to tell. */
export function languageOf(text: string): string | undefined {
  const letters = count(text, /\p{L}/gu)
  if (letters < 2) return undefined
  const own = scripts.find(([script]) => 2 * count(text, script) > letters)
  if (own !== undefined) return own[1]
  if (2 * count(text, devanagari) > letters) return indic(text)
  return franc()(text, { only: beside }) === 'swh' ? 'sw' : detect(text) || undefined
}

/** Words. Of nine hundred questions in English, cut to any length from here on, two were taken for another language. */
const longEnough = 10

/** A text of ten words or more whose halves are both in one other language: less is too often wrong. */
export function isSurelyNot(language: string, text: string): boolean {
  const words = text.split(/\s+/).filter(word => /\p{L}/u.test(word))
  const middle = words.length >> 1
  const [first, second] = [words.slice(0, middle), words.slice(middle)].map(half => languageOf(half.join(' ')))
  return words.length >= longEnough && first !== undefined && first !== language && first === second
}

function indic(text: string): string | undefined {
  const counts = Object.entries(markers).map(([code, marker]) => ({ code, n: count(text, marker) }))
  const [first, second] = counts.sort((a, b) => b.n - a.n)
  if (first!.n > second!.n) return first!.code
  return trigrams[franc()(text, { only: ['hin', 'mar', 'nep'], minLength: 1 })]
}

/** Loaded here: most rows name no language. */
const franc = () => require('franc') as Franc

const count = (text: string, pattern: RegExp) => text.match(pattern)?.length ?? 0
