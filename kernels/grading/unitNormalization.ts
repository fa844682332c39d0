/**
 * Makes an answer and the truth (the expected answer) comparable: LaTeX without markup and without units.
 *
 * in   an answer and the truth        out  both for math-verify, or their two units if these differ
 * A unit is removed if both texts have the same unit, or if one has a unit and the other is a number without variables.
 * Units are never converted: `1 m` does not equal `100 cm`, since a task that wants meters says so.
 * A letter at the end of the truth, as in `4s`, is a variable unless the answer has a unit as well.
 */

import { stripMarkup } from './markup'
import { maxQuantityChars, parseQuantity, type Quantity, variablePrefix } from './quantityParser'

export interface Comparable {
  readonly answer: string
  readonly truth: string
  /** The answer's unit and the truth's unit; undefined unless they differ. */
  readonly units?: readonly [string, string]
}

export function normalizeUnits(rawAnswer: string, rawTruth: string): Comparable {
  const [answer, truth] = [stripMarkup(rawAnswer), stripMarkup(rawTruth)]
  const given = parseQuantity(answer)
  const wanted = parseQuantity(truth)
  if (given.unit !== undefined && wanted.unit !== undefined) {
    const differ = given.unit !== '' && wanted.unit !== '' && given.unit !== wanted.unit
    if (differ) return { answer: given.value, truth: wanted.value, units: [given.unit, wanted.unit] }
  } else if (given.unit !== wanted.unit) {
    const isVariable = given.unit === undefined && wanted.isLetter === true
    if (isVariable || hasVariables(given.unit === undefined ? given : wanted)) return { answer, truth }
  }
  return { answer: given.value, truth: wanted.value }
}

/**
 * Returns true if a value contains variables, since the letter taken for a unit in the other value may be one of them.
 * A prefix `x =` does not count.
 */
const hasVariables = ({ value }: Quantity) =>
  /[A-Za-z]/.test(
    value
      .slice(0, maxQuantityChars)
      .replace(variablePrefix, '')
      .replace(/\\[A-Za-z]+/g, ''),
  )
