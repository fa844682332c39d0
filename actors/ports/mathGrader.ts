/**
 * The grader for answers in `\boxed{}`: reward 1 iff the answer is equivalent to the truth, else 0 (DESIGN §6).
 *
 * in   a response and the truth        out  the reward, what was taken as the answer, which rule decided
 */
import { type AnswerPlace, extractAnswer } from '../../kernels'
import type { Sandbox } from '../../sandbox'
import { type AnswerGraderOptions, answerGrader } from './answerGrader'
import type { Grader } from './verifierPort'

export interface MathGraderOptions extends AnswerGraderOptions {
  readonly place: AnswerPlace
}

/** The sandbox's interpreter must have math-verify. */
export function mathGrader(sandbox: Pick<Sandbox, 'run' | 'lanes'>, { place, ...options }: MathGraderOptions): Grader {
  const grade = answerGrader(sandbox, options)
  return async ({ response, truth }, signal) => {
    const answer = extractAnswer(response, place)
    if (answer === null) return { reward: 0, answer: '', how: 'no-answer' }
    const { correct, how } = await grade({ answer, truth }, signal)
    return { reward: correct ? 1 : 0, answer, how }
  }
}
