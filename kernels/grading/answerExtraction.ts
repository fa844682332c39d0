/**
 * Finds the answer in a model's response: in its `<answer>` tags, in its `\boxed{}`, as a number, or in the whole text.
 *
 * in   the text of the model's turns, and where an answer counts        out  the answer as text; null if there is none
 * A pair of tags is an `<answer>` and the next `</answer>` after it. A tag without its partner does not count. If two
 * opening tags precede one closing tag, the inner opening tag counts.
 * Invariant: linear time, never throws.
 */
import { lastNumber, numberAfterHashes } from './numericAnswer'

export const answerOpen = '<answer>'
export const answerClose = '</answer>'

/**
 * Place in a response where an answer counts. answer-tag: only in the last `<answer>…</answer>` (as in the paper).
 * anywhere: in the whole response (as in the paper's released code). hashes and last-number: GSM8K's strict and lenient
 * rule (numericAnswer.ts).
 */
export type AnswerPlace = 'answer-tag' | 'anywhere' | 'hashes' | 'last-number'

/**
 * Part of the response that is the answer, for rewards that compare text.
 * - answer-tag: the last `\boxed{}` in the last `<answer>`, or the whole text of that `<answer>` if it has no
 *   `\boxed{}`.
 * - anywhere: the last `\boxed{}` of the response, or the text of its last `<answer>` if it has no `\boxed{}`.
 * - hashes: the number after the last `####`.
 * - last-number: the last number of the response.
 * - response: everything that the model wrote.
 */
export type TextPlace = AnswerPlace | 'response'

/** Counts the pairs of answer tags in a response. `p_format` is computed from this number. */
export function countAnswerTags(text: string): number {
  let pairs = 0
  let from = 0
  for (;;) {
    const open = text.indexOf(answerOpen, from)
    if (open < 0) return pairs
    const close = text.indexOf(answerClose, open + answerOpen.length)
    if (close < 0) return pairs
    pairs++
    from = close + answerClose.length
  }
}

/** Returns the text inside the last pair of answer tags; null if there is no pair. */
export function lastAnswer(text: string): string | null {
  const lastClose = text.lastIndexOf(answerClose)
  if (lastClose < answerOpen.length) return null
  const open = text.lastIndexOf(answerOpen, lastClose - answerOpen.length)
  if (open < 0) return null
  const start = open + answerOpen.length
  // The pair ends at the first closing tag: further closing tags have no opening tag.
  return text.slice(start, text.indexOf(answerClose, start))
}

/**
 * Returns the answer in the given place; null if there is none. For `answer-tag` it is the trimmed content of the last
 * closed `\boxed{…}` between the last answer tags; for `anywhere`, of the last one in the whole response; for `hashes`
 * and `last-number`, a number.
 */
export function extractAnswer(response: string, place: AnswerPlace): string | null {
  if (place === 'hashes') return numberAfterHashes(response)
  if (place === 'last-number') return lastNumber(response)
  const text = place === 'anywhere' ? response : lastAnswer(response)
  return text === null ? null : lastBoxed(text)
}

/**
 * Returns the answer for rewards that compare text; null if the place has none. For `response`, special tokens such as
 * `<|im_end|>` are removed.
 */
export function answerText(response: string, place: TextPlace): string | null {
  if (place === 'response') return withoutSpecialTokens(response)
  if (place === 'hashes' || place === 'last-number') return extractAnswer(response, place)
  const tagged = lastAnswer(response)
  if (place === 'anywhere') return extractAnswer(response, 'anywhere') ?? tagged?.trim() ?? null
  return tagged === null ? null : (extractAnswer(tagged, 'anywhere') ?? tagged.trim())
}

const specialToken = /<\|[^|<>\s]{1,40}\|>/g
export const withoutSpecialTokens = (text: string): string => text.replace(specialToken, '').trim()

function lastBoxed(text: string): string | null {
  // Scans the text once from the left. The stack holds, for each open brace, the start of its content if \boxed opened
  // it, else null. Escaped braces (\{ and \}) do not count.
  const open: (number | null)[] = []
  let found: { readonly start: number; readonly end: number } | null = null
  for (let at = 0; at < text.length; at++) {
    const c = text[at]
    if (c === '\\') {
      const brace = braceAfterBoxed(text, at)
      if (brace >= 0) {
        open.push(brace + 1)
        at = brace
      } else if (!text.startsWith('\\boxed', at + 1)) at++ // `\\boxed`, as in a quoted string, counts as \boxed
    } else if (c === '{') open.push(null)
    else if (c === '}') {
      const start = open.pop()
      // The inner one of nested \boxed commands counts: its content begins last.
      if (start !== undefined && start !== null && (found === null || start > found.start)) found = { start, end: at }
    }
  }
  return found === null ? null : text.slice(found.start, found.end).trim()
}

/** Returns the index of the brace of a `\boxed {` that begins at `at`, or −1. */
function braceAfterBoxed(text: string, at: number): number {
  if (!text.startsWith('\\boxed', at)) return -1
  let brace = at + 6
  // Allows at most 10 blanks after \boxed: an unbounded run of blanks would make the search quadratic.
  while (brace < at + 16 && isBlank(text[brace])) brace++
  return text[brace] === '{' ? brace : -1
}

const isBlank = (c: string | undefined) => c === ' ' || c === '\n' || c === '\t' || c === '\r'
