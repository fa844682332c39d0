/**
 * Parses the input lines of `grade --jsonl` and prints its output lines.
 *
 * in   a line of text, or a verdict
 * out  an answer and a truth, or the reason why the line is rejected; a line to print
 * Invariant: every input line gets an output line, with the line's id if that is valid. Unknown fields are ignored, so
 * that rows of a data set can be graded unchanged.
 */
import type { Verdict } from '../../actors/verification/answerGrader'
import { type AnswerPlace, extractAnswer, lastAnswer, parseExactJson } from '../../kernels'
import { didYouMean } from '../../runtime/settings/nearestName'
import { withoutBom } from '../../runtime/settings/withoutBom'

export type GradeLineId = string | number | undefined

/**
 * Part of the text that holds the answer. `as-given`: the last answer tag, else the whole text; within it the last box,
 * if any.
 */
export type GradePlace = AnswerPlace | 'as-given'

export interface GradeLine {
  readonly id: GradeLineId
  /** Text of the answer; null if the place holds no answer, which cannot happen with `as-given`. */
  readonly answer: string | null
  readonly truth: string
}

export interface BadGradeLine {
  readonly id: GradeLineId
  readonly reason: string
}

export function parseGradeLine(line: string, place: GradePlace): GradeLine | BadGradeLine {
  let value: unknown
  try {
    value = parseExactJson(withoutBom(line))
  } catch (error) {
    return { id: undefined, reason: `not JSON: ${(error as Error).message}` }
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return { id: undefined, reason: 'a line must be a JSON object {"answer": …, "truth": …}' }
  }
  const fields = new Map(Object.entries(value))
  const given = fields.get('id')
  const id = typeof given === 'string' || typeof given === 'number' ? given : undefined
  if (given !== undefined && given !== null && id === undefined) {
    return { id, reason: 'id must be a string or a number' }
  }
  const texts: string[] = []
  for (const name of ['answer', 'truth']) {
    const text = fields.get(name)
    if (text === undefined) return { id, reason: `${name} is missing${didYouMean(name, fields.keys())}` }
    if (typeof text !== 'string' && typeof text !== 'number') {
      return { id, reason: `${name} must be a string or a number, not ${kindOf(text)}` }
    }
    texts.push(String(text))
  }
  const [answer = '', truth = ''] = texts
  if (truth.trim() === '') return { id, reason: 'truth is empty' }
  return { id, answer: answerIn(answer, place), truth: extractAnswer(truth, 'anywhere') ?? truth }
}

function answerIn(text: string, place: GradePlace): string | null {
  if (place !== 'as-given') return extractAnswer(text, place)
  const tagged = lastAnswer(text) ?? text
  return extractAnswer(tagged, 'anywhere') ?? tagged
}

const kindOf = (value: unknown) => (value === null ? 'null' : Array.isArray(value) ? 'an array' : `a ${typeof value}`)

/**
 * Prints the output for a graded line.
 * @param second the verdict of arithmetic, null if undecidable
 */
export const verdictLine = (id: GradeLineId, verdict: Verdict, second?: boolean | null): string => {
  const { correct, how, why } = verdict
  return printed(id, correct, how, why, second === undefined ? {} : { second, differ: differs(verdict, second) })
}

/**
 * True when arithmetic contradicts the verdict. A verdict by `--literal` (`how` is `literal`) refuses the form of an
 * answer, not its value, so arithmetic does not contradict it.
 */
export const differs = ({ correct, how }: Verdict, second: boolean | null): boolean =>
  second !== null && second !== correct && how !== 'literal'

/** Prints the output for a line without a verdict. `correct` is null, because the answer was not judged wrong. */
export const ungradedLine = (id: GradeLineId, how: 'rejected' | 'failed', why: string): string =>
  printed(id, null, how, why)

const printed = (id: GradeLineId, correct: boolean | null, how: string, why: string, more: object = {}) =>
  `${JSON.stringify({ ...(id === undefined ? {} : { id }), correct, how, why, ...more })}\n`
