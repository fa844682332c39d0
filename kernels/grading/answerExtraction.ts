/**
 * Finds the answer in a model's response: in its `<answer>` tags, in its `\boxed{}`, or in the whole text.
 *
 * in   the text of the model's turns, and where an answer counts        out  the answer as text; null if there is none
 * A pair of tags is an `<answer>` and the next `</answer>` after it. An opening tag without a closing one, or a closing tag
 * without an opening one, is no pair. Where two opening tags precede one closing tag, the inner opening tag counts.
 * Invariant: linear time, never throws.
 */

export const answerOpen = '<answer>'
export const answerClose = '</answer>'

/** answer-tag: the last `<answer>…</answer>` only (as in the paper). anywhere: the whole response (as in its release). */
export type AnswerPlace = 'answer-tag' | 'anywhere'

/**
 * answer-tag: the text of the last `<answer>`, or of its last box if it has one.
 * anywhere: the last box of the response, else its last tag.
 * response: everything that the model wrote.
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

/** Returns the content of the last balanced `\boxed{…}`, trimmed; null if there is none. Skips boxes that are not closed. */
export function extractAnswer(response: string, place: AnswerPlace): string | null {
  const text = place === 'anywhere' ? response : lastAnswer(response)
  return text === null ? null : lastBoxed(text)
}

/** Returns the answer for rewards that compare text. Special tokens (`<|im_end|>`) are no part of a `response` answer. */
export function answerText(response: string, place: TextPlace): string | null {
  if (place === 'response') return withoutSpecialTokens(response)
  const tagged = lastAnswer(response)
  if (place === 'anywhere') return extractAnswer(response, 'anywhere') ?? tagged?.trim() ?? null
  return tagged === null ? null : (extractAnswer(tagged, 'anywhere') ?? tagged.trim())
}

const specialToken = /<\|[^|<>\s]{1,40}\|>/g
export const withoutSpecialTokens = (text: string): string => text.replace(specialToken, '').trim()

function lastBoxed(text: string): string | null {
  // One pass from the left. The stack holds the content's start for each brace that \boxed opened, null for other braces.
  // Escaped braces (\{ and \}) do not count.
  const open: (number | null)[] = []
  let found: { readonly start: number; readonly end: number } | null = null
  for (let at = 0; at < text.length; at++) {
    const c = text[at]
    if (c === '\\') {
      const brace = braceAfterBoxed(text, at)
      if (brace >= 0) {
        open.push(brace + 1)
        at = brace
      } else if (!text.startsWith('\\boxed', at + 1)) at++ // `\\boxed`, as in a quoted string, means a box
    } else if (c === '{') open.push(null)
    else if (c === '}') {
      const start = open.pop()
      // The inner one of nested boxes begins last.
      if (start !== undefined && start !== null && (found === null || start > found.start)) found = { start, end: at }
    }
  }
  return found === null ? null : text.slice(found.start, found.end).trim()
}

/** Returns the index of the brace of a `\boxed {` that begins at `at`, or −1. */
function braceAfterBoxed(text: string, at: number): number {
  if (!text.startsWith('\\boxed', at)) return -1
  let brace = at + 6
  // Bounded to 10 blanks: an unbounded run of blanks after every \boxed would make this quadratic.
  while (brace < at + 16 && isBlank(text[brace])) brace++
  return text[brace] === '{' ? brace : -1
}

const isBlank = (c: string | undefined) => c === ' ' || c === '\n' || c === '\t' || c === '\r'
