/**
 * Answer tags in what the model wrote: how many there are, and what the last pair encloses.
 *
 * A tag here is a pair: `<answer>` and the next `</answer>` after it. An opening tag that is never closed, and a closing
 * one that was never opened, are none; of two openings before one closing the inner one counts.
 */

export const answerOpen = '<answer>'
export const answerClose = '</answer>'

/** Pairs of answer tags in a response: the number that p_format is computed from. */
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

/** What the last pair encloses; null without a pair. */
export function lastAnswer(text: string): string | null {
  const lastClose = text.lastIndexOf(answerClose)
  if (lastClose < answerOpen.length) return null
  const open = text.lastIndexOf(answerOpen, lastClose - answerOpen.length)
  if (open < 0) return null
  const start = open + answerOpen.length
  // Closing tags after the pair's own have nothing to close.
  return text.slice(start, text.indexOf(answerClose, start))
}
