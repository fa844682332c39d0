/**
 * Two answers made comparable: in LaTeX, without the unit that both have, or that one has and the other, a bare number, does not say.
 *
 * in   an answer and the truth        out  the same two for math-verify, or that their units differ
 * Invariant: pure, linear time. A unit is never converted: `1 m` is not `100 cm`, since who asks for meters says so.
 * A letter at the end of the truth, as in `4s`, is a variable unless the answer has a unit, too.
 */
import { longestPlain, named, type PlainAnswer, plainAnswer } from './plainAnswer'
import { tidied } from './tidied'

export interface Comparable {
  readonly answer: string
  readonly truth: string
  /** The units, where there are two that are not the same. */
  readonly units?: readonly [string, string]
}

export function inOneUnit(asGiven: string, asWanted: string): Comparable {
  const [answer, truth] = [tidied(asGiven), tidied(asWanted)]
  const given = plainAnswer(answer)
  const wanted = plainAnswer(truth)
  if (given.unit !== undefined && wanted.unit !== undefined) {
    const differ = given.unit !== '' && wanted.unit !== '' && given.unit !== wanted.unit
    if (differ) return { answer: given.value, truth: wanted.value, units: [given.unit, wanted.unit] }
  } else if (given.unit !== wanted.unit) {
    const isVariable = given.unit === undefined && wanted.isLetter === true
    if (isVariable || hasLetters(given.unit === undefined ? given : wanted)) return { answer, truth }
  }
  return { answer: given.value, truth: wanted.value }
}

/** It may mean something by them that the other calls a unit. `x =` is a name. */
const hasLetters = ({ value }: PlainAnswer) =>
  /[A-Za-z]/.test(
    value
      .slice(0, longestPlain)
      .replace(named, '')
      .replace(/\\[A-Za-z]+/g, ''),
  )
