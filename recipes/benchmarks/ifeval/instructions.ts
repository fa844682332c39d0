/**
 * Checks IFEval's 25 instructions (arXiv 2311.07911, Table 1), one rule for each instruction id.
 *
 * in   the instruction's arguments (`kwargs` of a row), a response, the prompt
 * out  true iff the response follows the instruction
 * Invariant: pure, and strict: the response is checked as it is, not also in the altered forms of the paper's loose
 * accuracy. A missing argument that has no default is an error with the argument's name.
 * Source: the paper's descriptions of the instructions.
 */
import { isDetectable, isSurelyNot, languageOf } from './language'
import { countSentences } from './sentences'
import { capitalWordsOf, occurrences, starParagraphs, wholeOccurrences, wordsOf } from './text'

export type Arguments = Readonly<Record<string, unknown>>
type Rule = (response: string, args: Arguments, prompt: string) => boolean

const numberOf = (args: Arguments, name: string): number => {
  const value = args[name]
  if (typeof value !== 'number') throw new RangeError(`an IFEval instruction needs the number '${name}' in its kwargs`)
  return value
}
const textOf = (args: Arguments, name: string): string => {
  const value = args[name]
  if (typeof value !== 'string') throw new RangeError(`an IFEval instruction needs the text '${name}' in its kwargs`)
  return value
}
const textsOf = (args: Arguments, name: string): readonly string[] => {
  const value = args[name]
  if (!Array.isArray(value)) throw new RangeError(`an IFEval instruction needs the list '${name}' in its kwargs`)
  return value.map(String)
}

/** Compares a count with its bound by the row's relation: `less than`, or `at least` (the default). */
function compared(count: number, args: Arguments, bound: string, relation = 'relation'): boolean {
  const limit = numberOf(args, bound)
  switch (args[relation] ?? 'at least') {
    case 'at least':
      return count >= limit
    case 'less than':
      return count < limit
    default:
      throw new RangeError(`'${relation}' is '${String(args[relation])}'; expected 'at least' or 'less than'`)
  }
}

const options = ['My answer is yes.', 'My answer is no.', 'My answer is maybe.']

export const instructions: Readonly<Record<string, Rule>> = {
  'keywords:existence': (text, args) => textsOf(args, 'keywords').every(word => occurrences(text, word) > 0),
  'keywords:frequency': (text, args) => compared(occurrences(text, textOf(args, 'keyword').trim()), args, 'frequency'),
  'keywords:forbidden_words': (text, args) =>
    textsOf(args, 'forbidden_words').every(word => wholeOccurrences(text, word) === 0),
  'keywords:letter_frequency': (text, args) =>
    compared(occurrences(text, textOf(args, 'letter')), args, 'let_frequency', 'let_relation'),
  'language:response_language': (text, args) => {
    const asked = textOf(args, 'language').trim().toLowerCase().split(/[-_]/)[0]!
    if (!isDetectable(asked)) throw new RangeError(`the language '${asked}' cannot be detected`)
    const found = languageOf(text)
    // In a text too short for detection the instruction counts as followed, as in the published checker.
    return found === undefined || found === asked
  },
  'length_constraints:number_sentences': (text, args) => compared(countSentences(text), args, 'num_sentences'),
  'length_constraints:number_words': (text, args) => compared(wordsOf(text).length, args, 'num_words'),
  'length_constraints:number_paragraphs': (text, args) =>
    starParagraphs(text)?.length === numberOf(args, 'num_paragraphs'),
  'length_constraints:nth_paragraph_first_word': (text, args) => {
    // Empty paragraphs are not counted, but the index of a paragraph counts them.
    const paragraphs = text.split('\n\n')
    const count = paragraphs.filter(part => part.trim() !== '').length
    const nth = numberOf(args, 'nth_paragraph')
    const word = /^["'“‘]*([^\s.,?!'"]*)/.exec(paragraphs[nth - 1]?.trim().split(/\s+/)[0] ?? '')?.[1]?.toLowerCase()
    return (
      nth <= count && count === numberOf(args, 'num_paragraphs') && word === textOf(args, 'first_word').toLowerCase()
    )
  },
  'detectable_content:number_placeholders': (text, args) =>
    // A placeholder runs from `[` to the next `]` of its line. Without a `]` the pattern matches to the line's end,
    // which keeps the search linear.
    (text.match(/\[[^\]\n]*\]?/g) ?? []).filter(found => found.endsWith(']')).length >=
    numberOf(args, 'num_placeholders'),
  'detectable_content:postscript': (text, args) => {
    const marker = textOf(args, 'postscript_marker').trim().toLowerCase()
    const loose = marker.replace(/[.*+?^${}()|[\]\\]/g, '\\$&').replaceAll('\\.', '\\.\\s?')
    return new RegExp(loose).test(text.toLowerCase())
  },
  'detectable_format:number_bullet_lists': (text, args) =>
    (text.match(/^\s*(?:\*[^*]|-).*$/gm)?.length ?? 0) === numberOf(args, 'num_bullets'),
  'detectable_format:constrained_response': text => options.some(option => text.includes(option)),
  'detectable_format:number_highlighted_sections': (text, args) => {
    // Counts highlights as the published checker does: `**a**` is one double highlight, `***a***` a single and a double
    // one.
    const single = (text.match(/\*[^\n*]*\*/g) ?? []).filter(m => /[^*\s]/.test(m))
    const double = (text.match(/\*\*[^\n*]*\*\*/g) ?? []).filter(m => /[^*\s]/.test(m))
    return single.length + double.length >= numberOf(args, 'num_highlights')
  },
  'detectable_format:multiple_sections': (text, args) => {
    const name = textOf(args, 'section_spliter')
      .trim()
      .replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
    return text.split(new RegExp(`\\s?${name}\\s?\\d+\\s?`)).length - 1 >= numberOf(args, 'num_sections')
  },
  'detectable_format:json_format': text => {
    const bare = text
      .trim()
      .replace(/^```(?:json)?/i, '')
      .replace(/```$/, '')
      .trim()
    try {
      JSON.parse(bare)
      return true
    } catch {
      return false
    }
  },
  'detectable_format:title': text => (text.match(/<<[^\n]+>>/g) ?? []).some(title => /[^<>\s]/.test(title)),
  'combination:two_responses': text => {
    const parts = text.split('******')
    const kept = parts.filter((part, at) => part.trim() !== '' || (at !== 0 && at !== parts.length - 1))
    return kept.length === 2 && kept.every(part => part.trim() !== '') && kept[0]!.trim() !== kept[1]!.trim()
  },
  'combination:repeat_prompt': (text, args, prompt) => {
    const repeated = typeof args.prompt_to_repeat === 'string' ? args.prompt_to_repeat : prompt
    return text.trim().toLowerCase().startsWith(repeated.trim().toLowerCase())
  },
  'startend:end_checker': (text, args) =>
    text
      .trim()
      .replace(/^"+|"+$/g, '')
      .toLowerCase()
      .endsWith(textOf(args, 'end_phrase').trim().toLowerCase()),
  'startend:quotation': text => text.trim().length > 1 && text.trim().startsWith('"') && text.trim().endsWith('"'),
  'change_case:capital_word_frequency': (text, args) =>
    compared(capitalWordsOf(text).length, args, 'capital_frequency', 'capital_relation'),
  'change_case:english_capital': text => /\p{L}/u.test(text) && text === text.toUpperCase() && isEnglish(text),
  'change_case:english_lowercase': text => /\p{L}/u.test(text) && text === text.toLowerCase() && isEnglish(text),
  'punctuation:no_comma': text => !text.includes(','),
}

/**
 * Returns true if all letters are Latin and the text is not surely of another language. Detectors mistake short texts
 * and capitals for other languages, so only texts of ten words or more are checked, in lower case.
 */
const isEnglish = (text: string) =>
  (text.match(/\p{L}/gu) ?? []).every(letter => /\p{Script=Latin}/u.test(letter)) &&
  !isSurelyNot('en', text.toLowerCase())
