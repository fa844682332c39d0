/**
 * A second opinion about an answer, by plain arithmetic: it owes nothing to the grader and takes microseconds.
 *
 * in   an answer and the truth, as LaTeX or in plain words        out  whether they are one number; undefined where it cannot tell
 * Where it says otherwise than the grader, the truth may be wrong, or the grader was led astray.
 */
import { extractAnswer } from './answer'
import { sameNumber } from './numericValue'
import { plainAnswer } from './plainAnswer'

export const secondOpinion = (answer: string, truth: string): boolean | undefined =>
  sameNumber(plainAnswer(answer), plainAnswer(extractAnswer(truth, 'anywhere') ?? truth))
