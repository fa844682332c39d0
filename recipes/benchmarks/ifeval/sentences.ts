/**
 * Counts sentences as Punkt does: nltk's sentence splitter, which IFEval's published checker uses.
 *
 * in   a text        out  the number of its sentences
 * Invariant: pure and linear. `!` and `?` end a sentence; `.` ends one, too, except after an abbreviation, an initial,
 * a number or an ellipsis whose sentence continues. A line break alone ends none. Closing marks belong to the sentence
 * before them; other marks after the end (`**`) are a sentence of their own. Short lists of words stand for Punkt's
 * trained tables.
 */

/** Matches a mark that may end a sentence: another mark follows it, or a blank and more text. */
const candidates = /[.!?](?=[)";}\]*:@'({[!?‘’“”«»]|\s+\S)/g
const closingMarks = /["')\]}‘’“”«»]+(?:\s+|(?=--)|$)/my
/** Matches the word before a full stop, as Punkt delimits it: without any mark that can end a word. */
const lastWord = /[^\s)";}\]*:@'({[!?‘’“”«»]*$/

const abbreviation =
  /^(?:mr|mrs|ms|dr|prof|messrs|gen|sen|rep|lt|col|st|sr|jr|vs|inc|ltd|co|corp|cos|bros|ave|yr|ft|jan|feb|aug|sept?|oct|nov|dec|u\.s|u\.s\.a|u\.k|u\.n|ph\.d|a\.m|p\.m|d\.c|[cdefghjklmnprstvw])$/i
const ellipsis = /\.$/
const initial = /^\p{L}$/u
const number = /^-?[.,]?\d[\d,.-]*$/
/** Matches words that begin a sentence even after an abbreviation. */
const starter =
  /^(?:He|It|They|There|These|This|The|I|So|Since|Both|However|Instead|Though|Although|While|Meanwhile|When|If|In|But|Some|Many|Even|Thus|Yet)(?!\p{L})/u

export function countSentences(text: string): number {
  const whole = text.trimEnd()
  let begin = 0
  let count = 0
  for (const end of lastCandidates(whole)) {
    if (!endsSentence(whole, end)) continue
    if (end > begin) count++
    begin = end + /^\s*/.exec(whole.slice(end, end + 64))![0].length
    closingMarks.lastIndex = begin
    begin += closingMarks.exec(whole)?.[0].length ?? 0
  }
  return begin < whole.length ? count + 1 : count
}

/** Positions after marks that may end a sentence; of several marks in one word, only the last counts. */
function lastCandidates(text: string): readonly number[] {
  const ends = [...text.matchAll(candidates)].map(({ index }) => index + 1)
  return ends.filter((end, at) => ends[at + 1] === undefined || /\s/.test(text.slice(end, ends[at + 1])))
}

function endsSentence(text: string, end: number): boolean {
  const before = text.slice(Math.max(0, end - 80), end).replace(/^[\s\S]*\s/, '')
  if (/[!?](?:[)";}\]*:@'({[!?‘’“”«»]|$)/.test(before)) return true
  const word = lastWord.exec(before.slice(0, -1))![0]
  const next = /^\s*(\S*)/.exec(text.slice(end, end + 80))![1]!
  const isLower = /^\p{Ll}/u.test(next)
  const isUpper = /^\p{Lu}/u.test(next)
  if (ellipsis.test(word)) return isUpper
  if (number.test(word)) return !isLower
  if (abbreviation.test(word.split('-').at(-1)!)) return starter.test(next)
  if (initial.test(word)) return isUpper ? starter.test(next) : !isLower
  return true
}
