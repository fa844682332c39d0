/**
 * The part of a response that counts as its answer, for rewards whose answers are text.
 *
 * in   the text of the model's turns, where an answer counts        out  the answer; null where there is none
 * Invariant: linear time, never throws. Special tokens (`<|im_end|>`) are no part of an answer.
 */
import { type AnswerPlace, extractAnswer } from './answer'
import { lastAnswer } from './answerTags'

/**
 * answer-tag: what the last `<answer>` holds, or of that its last box. anywhere: the last box, else the last tag.
 * response: all that the model wrote.
 */
export type TextPlace = AnswerPlace | 'response'

const special = /<\|[^|<>\s]{1,40}\|>/g

export function answerText(response: string, place: TextPlace): string | null {
  if (place === 'response') return withoutSpecialTokens(response)
  const tagged = lastAnswer(response)
  if (place === 'anywhere') return extractAnswer(response, 'anywhere') ?? tagged?.trim() ?? null
  return tagged === null ? null : (extractAnswer(tagged, 'anywhere') ?? tagged.trim())
}

export const withoutSpecialTokens = (text: string): string => text.replace(special, '').trim()
