/**
 * Arena-Hard (arXiv 2406.11939): a judge model compares an answer with the baseline's answer, in both orders.
 *
 * in   rows {question_id, turns}, the baseline's answers {question_id, choices}; or, as in the benchmark's second
 *      version, {uid, prompt} and {uid, messages}
 * out  problems; a reward from 0 to 1
 *
 * The reward is the weighted mean of two games: 1 for a win, ½ for a tie, 0 for a loss. A game with a strong verdict
 * (>>) counts three times, as in the benchmark's own table. A judge that gives no verdict is asked once more; if it
 * gives none again, the answer has no reward and is counted under that reason.
 */

import type { RewardFunction } from '../../../config'
import { withoutSpecialTokens } from '../../../kernels'
import { TroupeError } from '../../../runtime/errors'
import { lastExcerpt } from '../../../runtime/secrets/knownSecrets'
import { parseConfig } from '../../../runtime/settings/resolveConfig'
import { badRow, isObject, type Problems, problemCollector, rowsOf } from '../problem'
import { type JudgeReply, judgeModel, judgeSchema } from './judge'

export function parseArenaHard(text: string, baseline: string | undefined): Problems {
  const answers = new Map<string, string>()
  const places = new Map<string, number>()
  for (const { row, place } of baseline === undefined ? [] : rowsOf(baseline)) {
    const id = isObject(row) ? idOf(row) : undefined
    if (id === undefined)
      throw badRow(place, "the row of the baseline's answers is no JSON object with a question_id or uid")
    const before = places.get(id)
    if (before !== undefined)
      throw badRow(place, `question_id '${id}' is already used at line ${before} of the baseline's answers`)
    places.set(id, place)
    const answer = answerOf(row)
    if (answer !== undefined) answers.set(id, answer)
  }
  const { add, drop, result } = problemCollector()
  for (const { row, place } of rowsOf(text)) {
    if (row === undefined) drop('not JSON')
    else if (!isObject(row)) drop('not an object')
    else {
      const id = idOf(row)
      const [first] = Array.isArray(row.turns) ? row.turns : []
      const question = typeof row.prompt === 'string' ? row.prompt : isObject(first) ? first.content : first
      if (id === undefined) throw badRow(place, 'the row has no question_id or uid')
      if (typeof question !== 'string' || question.trim() === '') drop('no question')
      else if (!answers.has(id)) drop('the baseline has no answer to it')
      else
        add(
          { id, question, truth: answers.get(id)!, metadata: { category: String(row.category ?? row.cluster ?? '') } },
          place,
        )
    }
  }
  return result
}

const idOf = (row: Readonly<Record<string, unknown>>) => {
  const id = row.question_id ?? row.uid
  return typeof id === 'string' || typeof id === 'number' ? String(id) : undefined
}

/**
 * Returns the text of a baseline's answer: `choices[0].turns[0].content`, or the last of `messages` (the form of the
 * benchmark's second version).
 */
function answerOf(row: unknown): string | undefined {
  if (!isObject(row)) return undefined
  const [choice] = Array.isArray(row.choices) ? row.choices : []
  const [turn] = isObject(choice) && Array.isArray(choice.turns) ? choice.turns : []
  const last = Array.isArray(row.messages) ? row.messages.at(-1) : undefined
  const content = isObject(turn) ? turn.content : isObject(last) ? last.content : undefined
  const text = isObject(content) ? content.answer : content
  return typeof text === 'string' ? text : undefined
}

const instructions = [
  'You compare two answers to the same request, A and B, for someone who has to rely on the better one.',
  'First work out for yourself what a good answer must have. Then look for what is wrong, missing, or beside the point in each.',
  'What helps counts, and what is correct; length by itself does not. The order in which they stand means nothing.',
  'End with exactly one verdict in double brackets:',
  '[[A>>B]] A is much better, [[A>B]] A is better, [[A=B]] they are about the same, [[B>A]] B is better, [[B>>A]] B is much better.',
].join('\n')

const verdicts: Readonly<Record<string, { readonly value: number; readonly weight: number }>> = {
  'A>>B': { value: 1, weight: 3 },
  'A>B': { value: 1, weight: 1 },
  'A=B': { value: 0.5, weight: 1 },
  'B>A': { value: 0, weight: 1 },
  'B>>A': { value: 0, weight: 3 },
}

/** Returns the verdict of a judge's reply; undefined if the reply has none, or two that differ. */
export function verdictIn(text: string): string | undefined {
  const found = new Set([...text.matchAll(/\[\[([AB](?:>>|>|=|<<|<)[AB])\]\]/g)].map(match => normalized(match[1]!)))
  const [only] = found
  return found.size === 1 && only !== undefined && verdicts[only] !== undefined ? only : undefined
}

/** Normal form of a verdict: `B<A` becomes `A>B`, `B=A` becomes `A=B`. */
function normalized(verdict: string): string {
  const said = /^([AB])(>>|>|=|<<|<)([AB])$/.exec(verdict)!
  if (said[2]!.startsWith('<')) return `${said[3]}${said[2]!.replaceAll('<', '>')}${said[1]}`
  return said[2] === '=' ? 'A=B' : verdict
}

type Ask = ReturnType<typeof judgeModel>
const judges = new Map<string, Ask>()

function judgeOf(data: Readonly<Record<string, unknown>>): Ask {
  const key = JSON.stringify(data.judge)
  const known = judges.get(key)
  if (known !== undefined) return known
  const judge = judgeModel(parseConfig(judgeSchema, data.judge, 'data.judge of the evaluation arena-hard'))
  judges.set(key, judge)
  return judge
}

export const arenaHardReward: RewardFunction = async ({ response, task }, { signal, aside, config }) => {
  const ask = judgeOf(config.data)
  const own = withoutSpecialTokens(response)
  const question = task.messages.at(-1)?.content ?? ''
  const game = async (a: string, b: string): Promise<string> => {
    const content = `Request:\n${question}\n\n--- Answer A ---\n${a}\n--- end of A ---\n\n--- Answer B ---\n${b}\n--- end of B ---`
    let reply: JudgeReply | undefined
    for (let attempt = 0; attempt < 2; attempt++) {
      reply = await ask(
        [
          { role: 'system', content: instructions },
          { role: 'user', content },
        ],
        { signal, aside },
      )
      const verdict = verdictIn(reply.text)
      if (verdict !== undefined) return verdict
    }
    throw refused(reply!)
  }
  const [first, second] = await Promise.all([game(own, task.truth), game(task.truth, own)])
  // In the second game the model's answer was B, so the value of the verdict is mirrored.
  const mirrored = { ...verdicts[second]!, value: 1 - verdicts[second]!.value }
  const games = [verdicts[first]!, mirrored]
  const weight = games.reduce((sum, one) => sum + one.weight, 0)
  const score = games.reduce((sum, one) => sum + one.weight * one.value, 0) / weight
  return { score, answer: `${first} ${second}`, how: 'arena-hard', why: `as A: ${first}; as B: ${second}` }
}

const refused = ({ text, refusal }: JudgeReply) =>
  new TroupeError(refusal === undefined ? 'verifier.no_verdict' : 'verifier.judge_refused', {
    boundary: 'verifier',
    retriable: false,
    message:
      refusal !== undefined
        ? `the judge refused to compare the answers: ${refusal}`
        : `the judge's reply must hold exactly one of the verdicts [[A>>B]] … [[B>>A]]; it ends: ${JSON.stringify(lastExcerpt(text, 120))}`,
  })
