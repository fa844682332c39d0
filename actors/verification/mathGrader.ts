/**
 * Grades mathematical answers: reward 1 if and only if the answer is equivalent to the truth, else 0.
 *
 * in   a response and the truth        out  the reward, the extracted answer, the rule that decided, and why
 * Invariant: a response without an answer in the place that `place` names gets reward 0. The grader rejects only as
 * `answerGrader` does: it never rejects because of what an answer says.
 */
import { type AnswerPlace, extractAnswer } from '../../kernels'
import type { Sandbox } from '../../sandbox'
import { type AnswerGraderOptions, answerGrader } from './answerGrader'
import type { Graded, GraderAsk } from './verifierPort'

export interface MathGraderOptions extends AnswerGraderOptions {
  readonly place: AnswerPlace
}

/** Makes the grader. @param sandbox a sandbox whose Python has math-verify */
export function mathGrader(
  sandbox: Pick<Sandbox, 'run' | 'lanes'>,
  { place, ...options }: MathGraderOptions,
): (ask: Pick<GraderAsk, 'response' | 'truth'>, signal: AbortSignal) => Promise<Graded> {
  const grade = answerGrader(sandbox, options)
  return async ({ response, truth }, signal) => {
    const answer = extractAnswer(response, place)
    if (answer === null)
      return {
        reward: 0,
        answer: '',
        how: 'no-answer',
        why: `the response has no ${isNumberPlace(place) ? 'number' : '\\boxed{}'} in the place that reward.place names`,
      }
    const { correct, how, why } = await grade({ answer, truth }, signal)
    return { reward: correct ? 1 : 0, answer, how, why }
  }
}

const isNumberPlace = (place: AnswerPlace) => place === 'hashes' || place === 'last-number'
