/**
 * Checks an answer by floating-point arithmetic, independently of sympy and within microseconds.
 *
 * in   an answer and the truth (the expected answer), as LaTeX or in plain words
 * out  true: the same number; false: different numbers or units; undefined: arithmetic cannot decide
 * If this check contradicts the grader, the truth, the grader or this check is wrong. `50 %` equals both 50 and ½, as
 * it does for math-verify.
 */
import { extractAnswer } from './answerExtraction'
import { sameInteger } from './integers'
import { numericValue } from './numericValue'
import { normalizeUnits } from './unitNormalization'

/**
 * Returns true if the answer and the truth are the same number; false if the numbers or the units differ; undefined if
 * arithmetic cannot decide. If only one of the two has a per cent sign, they may also be equal without it.
 */
export function checkByArithmetic(answer: string, truth: string): boolean | undefined {
  const pair = normalizeUnits(answer, extractAnswer(truth, 'anywhere') ?? truth)
  const same = sameNumber(pair.answer, pair.truth)
  if (same === undefined) return undefined
  if (pair.units !== undefined) return false
  return (
    same ||
    (hasPercent(pair.answer) !== hasPercent(pair.truth) &&
      sameNumber(withoutPercent(pair.answer), withoutPercent(pair.truth)) === true)
  )
}

/**
 * Compares two answers as numbers. Undefined if one of them is not a number, or if the rounding to doubles may be the
 * cause of their small difference, or of their equality.
 */
export function sameNumber(a: string, b: string): boolean | undefined {
  const integers = sameInteger(a, b)
  if (integers !== undefined) return integers
  const left = numericValue(a)
  const right = numericValue(b)
  if (left === undefined || right === undefined) return undefined
  if (Math.abs(left - right) > 1e-9 * Math.max(1, Math.abs(left), Math.abs(right))) return false
  const isExact =
    left === right && Math.abs(left) <= Number.MAX_SAFE_INTEGER && ![a, b].some(text => manyDigits.test(text))
  return isExact || undefined
}

/** Matches sixteen or more digits and points in a row: a double may round so long a number. */
const manyDigits = /\d[\d.]{15}/
const percent = /\s*\\?%\s*\$?$/
const hasPercent = (text: string) => percent.test(text)
const withoutPercent = (text: string) => text.replace(percent, '')
