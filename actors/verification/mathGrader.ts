/**
 * The grader for answers in `\boxed{}`: reward 1 iff the answer is equivalent to the truth, else 0 (DESIGN §6).
 *
 * in   a response and the truth        out  the reward, what was taken as the answer, which rule decided
 */
import { type AnswerPlace, extractAnswer } from '../../kernels'
import type { Sandbox } from '../../sandbox'
import { type AnswerGraderOptions, answerGrader } from './answerGrader'
import type { Graded, GraderAsk } from './verifierPort'

export interface MathGraderOptions extends AnswerGraderOptions {
  readonly place: AnswerPlace
}

/** The sandbox's interpreter must have math-verify. */
export function mathGrader(
  sandbox: Pick<Sandbox, 'run' | 'lanes'>,
  { place, ...options }: MathGraderOptions,
): (ask: Pick<GraderAsk, 'response' | 'truth'>, signal: AbortSignal) => Promise<Graded> {
  const grade = answerGrader(sandbox, options)
  return async ({ response, truth }, signal) => {
    const answer = extractAnswer(response, place)
    if (answer === null)
      return { reward: 0, answer: '', how: 'no-answer', why: 'there is no \\boxed{} where it has to stand' }
    const { correct, how, why } = await grade({ answer, truth }, signal)
    return { reward: correct ? 1 : 0, answer, how, why }
  }
}
