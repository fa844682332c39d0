/**
 * Detects the language of a text, among those that IFEval asks for.
 *
 * in   a text        out  a two-letter code (ISO 639-1); undefined if the text is too short
 * Invariant: pure. One detector is not enough: tinyld lacks five of IFEval's thirty languages. Two of these five are
 * recognised by their script; Marathi and Nepali, which share a script with Hindi, by words; Swahili by a second
 * detector, franc, which is weaker than tinyld on short texts.
 */
type Tinyld = Pick<typeof import('tinyld'), 'detect' | 'supportedLanguages' | 'toISO2'>
type Franc = (text: string, options?: { readonly only?: readonly string[]; readonly minLength?: number }) => string

/** Scripts of the two languages that tinyld lacks and that have a script of their own, with the language. */
const scripts: readonly (readonly [RegExp, string])[] = [
  [/\p{Script=Gurmukhi}/gu, 'pa'],
  [/\p{Script=Malayalam}/gu, 'ml'],
]
const devanagari = /\p{Script=Devanagari}/gu
const trigrams: Readonly<Record<string, string>> = { hin: 'hi', mar: 'mr', nep: 'ne' }

/** Words that only Hindi, only Marathi or only Nepali has. They separate short texts better than trigrams do. */
const markers: Readonly<Record<string, RegExp>> = {
  hi: /(?<!\p{L}|\p{M})(?:है|हैं|और|में|नहीं|था|थी|थे|का|की|के|को|से|हूँ|यह|वह)(?!\p{L}|\p{M})/gu,
  mr: /(?<!\p{L}|\p{M})(?:आहे|आहेत|आणि|नाही|होते|होता|मी|मला|आम्ही|हे|हा|ही|ते|च्या)(?!\p{L}|\p{M})|ळ/gu,
  ne: /(?<!\p{L}|\p{M})(?:छ|छन्|छु|छौं|छैन|र|हो|हुन्|गर्छ|यो|पनि|मा|लाई)(?!\p{L}|\p{M})|(?:हरू|हरु|लाई)/gu,
}

/**
 * Candidate languages of franc's Swahili check. Swahili's neighbours are left out, since franc takes short Swahili
 * texts for them.
 */
const beside = () => ['swh', ...tinyld().supportedLanguages.filter(one => one !== 'run')]

/** Codes of the languages that can be detected. */
const languages = () => [
  ...tinyld().supportedLanguages.map(one => tinyld().toISO2(one)),
  ...scripts.map(([, code]) => code),
  ...Object.values(trigrams),
  'sw',
]

/** Returns true for the two-letter code of a language that can be detected. */
export const isDetectable = (code: string): boolean => languages().includes(code)

/** Returns the language of a text; undefined for a text that is too short for detection. */
export function languageOf(text: string): string | undefined {
  const letters = count(text, /\p{L}/gu)
  if (letters < 2) return undefined
  const own = scripts.find(([script]) => 2 * count(text, script) > letters)
  if (own !== undefined) return own[1]
  if (2 * count(text, devanagari) > letters) return indic(text)
  return franc()(text, { only: beside() }) === 'swh' ? 'sw' : tinyld().detect(text) || undefined
}

/**
 * Lower bound on the words of a text that `isSurelyNot` judges: of 900 English questions, cut to any length from this
 * one on, two were misdetected.
 */
const minWords = 10

/**
 * Returns true for a text of ten words or more whose halves are both in the same other language. Weaker evidence is too
 * often wrong.
 */
export function isSurelyNot(language: string, text: string): boolean {
  const words = text.split(/\s+/).filter(word => /\p{L}/u.test(word))
  const middle = words.length >> 1
  const [first, second] = [words.slice(0, middle), words.slice(middle)].map(half => languageOf(half.join(' ')))
  return words.length >= minWords && first !== undefined && first !== language && first === second
}

function indic(text: string): string | undefined {
  const counts = Object.entries(markers).map(([code, marker]) => ({ code, n: count(text, marker) }))
  const [first, second] = counts.sort((a, b) => b.n - a.n)
  if (first!.n > second!.n) return first!.code
  return trigrams[franc()(text, { only: ['hin', 'mar', 'nep'], minLength: 1 })]
}

/**
 * The detectors are loaded at their first use: most rows ask for no language, and every command that reads a recipe
 * loads this file.
 */
const franc = () => require('franc') as Franc
const tinyld = () => require('tinyld') as Tinyld

const count = (text: string, pattern: RegExp) => text.match(pattern)?.length ?? 0
