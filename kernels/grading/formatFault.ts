/**
 * Checks the form of a response: every tool call can be parsed, and the response ends (special tokens aside) with its
 * only `<answer>` element, which is not empty.
 *
 * in   the text of the model's turns        out  the first fault, in words; undefined if there is none
 * Invariant: linear time, never throws. The check does not look at whether the answer is right.
 */

import { parseToolCalls } from '../toolCalls/toolCalls'
import { answerClose, answerOpen, countAnswerTags, lastAnswer, withoutSpecialTokens } from './answerExtraction'

export function formatFault(response: string): string | undefined {
  const text = withoutSpecialTokens(response)
  const { calls, unclosed } = parseToolCalls(text)
  const broken = calls.findIndex(call => call.kind === 'malformed')
  if (broken >= 0) return `tool call ${broken + 1} of ${calls.length} cannot be read`
  if (unclosed) return 'a tool call is not closed'
  const tags = countAnswerTags(text)
  if (tags !== 1) return tags === 0 ? 'there is no answer element' : `there are ${tags} answer elements`
  if (text.split(answerOpen).length !== 2 || text.split(answerClose).length !== 2) return 'an answer tag has no partner'
  if ((lastAnswer(text) ?? '').trim() === '') return 'the answer element is empty'
  if (!text.endsWith(answerClose)) return 'something follows the answer element'
  return undefined
}
