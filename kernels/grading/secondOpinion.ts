/**
 * A second opinion about an answer, by plain arithmetic: it owes nothing to the grader and takes microseconds.
 *
 * in   an answer and the truth, as LaTeX or in plain words        out  whether they are one number; undefined where it cannot tell
 * Where it says otherwise than the grader, the truth may be wrong, or the grader was led astray. `50 %` is 50 as well as ½, as it is to
 * math-verify.
 */
import { extractAnswer } from './answer'
import { inOneUnit } from './inOneUnit'
import { sameNumber } from './numericValue'

export function secondOpinion(answer: string, truth: string): boolean | undefined {
  const pair = inOneUnit(answer, extractAnswer(truth, 'anywhere') ?? truth)
  const same = sameNumber(pair.answer, pair.truth)
  if (same === undefined) return undefined
  if (pair.units !== undefined) return false
  return (
    same ||
    (hasPercent(pair.answer) !== hasPercent(pair.truth) && sameNumber(bare(pair.answer), bare(pair.truth)) === true)
  )
}

const percent = /\s*\\?%\s*\$?$/
const hasPercent = (text: string) => percent.test(text)
const bare = (text: string) => text.replace(percent, '')
