/**
 * Graders that need only the text: `choice`, `exact` and `format`.
 *
 * in   a response, its task, and the place in the response that holds the answer        out  reward 0 or 1, and why
 * Invariant: pure; every response has a verdict, unless the task is at fault: `choice` rejects with config.bad_truth if
 * the truth names no choice.
 */
import { answerText, formatFault, namedChoice, normalizeInteger, normalizeUnicode, type TextPlace } from '../../kernels'
import { TroupeError } from '../../runtime/errors'
import type { Graded, Grader } from './verifierPort'

const noAnswer = 'the response has no answer in the place that reward.place names'
const wrong = (how: string, why: string, answer = ''): Graded => ({ reward: 0, answer, how, why })

/**
 * Grader for multiple choice. The truth is a letter; `metadata.choices` may hold the choices' texts, A first. Without
 * texts, or with more than 26, there are four choices, A to D.
 */
export function choiceGrader(place: TextPlace): Grader {
  return async ({ response, truth, task }) => {
    const choices = textsOf(task.metadata?.choices)
    const count = choices.length > 0 ? choices.length : 4
    const right = namedChoice(truth, Math.max(count, 2), choices)
    if (!('letter' in right)) throw badTruth(task.id, truth)
    const answer = answerText(response, place)
    if (answer === null || answer === '') return wrong('no-answer', noAnswer)
    const named = namedChoice(answer, Math.max(count, 2), choices)
    if (!('letter' in named)) {
      const why = named.fault === 'several' ? 'the answer names more than one choice' : 'the answer names no choice'
      return wrong(named.fault === 'several' ? 'several-choices' : 'no-choice', why, answer)
    }
    const reward = named.letter === right.letter ? 1 : 0
    return {
      reward,
      answer: named.letter,
      how: 'choice',
      why: `the answer names ${named.letter}, the truth is ${right.letter}`,
    }
  }
}

/**
 * Grader that compares the answer and the truth as text, with Unicode forms normalised and each run of blanks as one
 * blank; two integers may also be written in different ways.
 */
export function exactGrader(place: TextPlace): Grader {
  return async ({ response, truth }) => {
    const answer = answerText(response, place)
    if (answer === null || answer === '') return wrong('no-answer', noAnswer)
    const same = normalized(answer) === normalized(truth) || isSameInteger(answer, truth)
    return { reward: same ? 1 : 0, answer, how: 'exact', why: same ? 'the same text' : 'a different text' }
  }
}

export const formatGrader: Grader = async ({ response }) => {
  const fault = formatFault(response)
  return { reward: fault === undefined ? 1 : 0, answer: '', how: 'format', why: fault ?? 'the form is as required' }
}

const normalized = (text: string) => normalizeUnicode(text).replace(/\s+/g, ' ').trim()

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
    message: `task ${task} has the truth '${truth.slice(0, 80)}', which names none of its choices`,
    hint: "give one letter within the task's choices as truth: the reward 'choice' compares letters",
  })
