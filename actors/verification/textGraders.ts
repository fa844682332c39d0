/**
 * Graders that need nothing but the text: `choice`, `exact` and `format`.
 *
 * in   a response, its task, where the answer stands        out  0 or 1, and why
 * Invariant: pure; every response has a verdict.
 */
import { answerText, formatFault, inOneForm, namedChoice, normalizeInteger, type TextPlace } from '../../kernels'
import { TroupeError } from '../../runtime/errors'
import type { Graded, Grader } from './verifierPort'

const wrong = (how: string, why: string, answer = ''): Graded => ({ reward: 0, answer, how, why })

/** The truth is a letter; `metadata.choices` may hold the texts, A first. Four choices where nothing says how many. */
export function choiceGrader(place: TextPlace): Grader {
  return async ({ response, truth, task }) => {
    const choices = textsOf(task.metadata?.choices)
    const count = choices.length > 0 ? choices.length : 4
    const right = namedChoice(truth, Math.max(count, 2), choices)
    if (!('letter' in right)) throw badTruth(task.id, truth)
    const answer = answerText(response, place)
    if (answer === null || answer === '') return wrong('no-answer', 'there is no answer where it has to stand')
    const named = namedChoice(answer, Math.max(count, 2), choices)
    if (!('letter' in named)) {
      const why = named.fault === 'several' ? 'it names more than one choice' : 'it names no choice'
      return wrong(named.fault === 'several' ? 'several-choices' : 'no-choice', why, answer)
    }
    const reward = named.letter === right.letter ? 1 : 0
    return { reward, answer: named.letter, how: 'choice', why: `it names ${named.letter}, right is ${right.letter}` }
  }
}

/** Equal as text, blanks and Unicode forms aside, or as integers. */
export function exactGrader(place: TextPlace): Grader {
  return async ({ response, truth }) => {
    const answer = answerText(response, place)
    if (answer === null || answer === '') return wrong('no-answer', 'there is no answer where it has to stand')
    const same = plain(answer) === plain(truth) || isSameInteger(answer, truth)
    return { reward: same ? 1 : 0, answer, how: 'exact', why: same ? 'the same text' : 'another text' }
  }
}

export const formatGrader: Grader = async ({ response }) => {
  const fault = formatFault(response)
  return { reward: fault === undefined ? 1 : 0, answer: '', how: 'format', why: fault ?? 'as it was asked for' }
}

const plain = (text: string) => inOneForm(text).replace(/\s+/g, ' ').trim()

function isSameInteger(answer: string, truth: string): boolean {
  const integer = normalizeInteger(answer)
  return integer !== undefined && integer === normalizeInteger(truth)
}

const textsOf = (value: unknown): readonly string[] =>
  Array.isArray(value) && value.length <= 26 && value.every(one => typeof one === 'string') ? value : []

const badTruth = (task: string, truth: string) =>
  new TroupeError('config.bad_truth', {
    boundary: 'config',
    retriable: false,
    message: `the truth of task ${task} is '${truth.slice(0, 80)}', which names no choice`,
    hint: "the reward 'choice' needs a letter as truth, within the choices",
  })
