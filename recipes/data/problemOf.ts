/**
 * Reads a problem from a row of a published set.
 *
 * in   a row of JSON, the set's field names
 * out  problem, answer and sampled answers, or the reason why the row has none
 * Invariant: pure; no row makes it throw. `broken` rows do not have the set's form; `other` rows have the form, but the
 * set's declaration filters them out.
 */
import { extractAnswer } from '../../kernels/grading/answerExtraction'
import { normalizeInteger } from '../../kernels/grading/integers'
import type { ProblemSet } from './sets'

export interface PublishedProblem {
  readonly problem: string
  readonly answer: string
  /** Answers that models gave to the problem, if the row lists them. */
  readonly sampled: readonly string[]
  readonly id: string | undefined
  /** Fields that are kept beside the problem, such as subject, level or worked solution. */
  readonly rest: Readonly<Record<string, string | number>>
}

export type NoProblem = { readonly broken: string } | { readonly other: string }

const ids = ['id', 'unique_id', 'problem_idx', 'ID', 'extra_info.index']
const kept = ['subject', 'level', 'year', 'problem_source', 'data_source']
const samples = [
  ...['answers', 'sampled_answers', 'samples', 'generated_answers', 'model_answers', 'predictions', 'generations'],
  ...['responses', 'candidates', 'generated_solutions', 'generated_solution'],
]
/** Matches instructions around a problem in the prompts of training sets; they are removed. */
const wrappings = [
  /^Solve the following math problem step by step\. The last line of your response should be of the form Answer: \$Answer \(without quotes\) where \$Answer is the answer to the problem\.\s*/,
  /\s*Remember to put your answer on its own line after "Answer:"\.\s*$/,
]

export function problemOf(row: unknown, set: ProblemSet): PublishedProblem | NoProblem {
  if (row === undefined) return { broken: 'not JSON' }
  if (typeof row !== 'object' || row === null || Array.isArray(row)) return { broken: 'not an object' }
  const fields = row as Readonly<Record<string, unknown>>
  for (const [field, pattern] of Object.entries(set.only ?? {})) {
    const value = at(fields, field)
    if (typeof value === 'string' && !pattern.test(value)) return { other: `${field} is another kind` }
  }
  const stated = firstText(fields, set.problem)
  if (stated === undefined) return { broken: `no ${set.problem[0]}` }
  const problem = wrappings.reduce((text, wrapping) => text.replace(wrapping, ''), stated).trim()
  if (problem === '') return { broken: `no ${set.problem[0]}` }
  const answer = answerOf(fields, set)
  if (answer === undefined) return { broken: set.answers === 'worked' ? 'no answer after ####' : `no ${set.answer[0]}` }
  const sampled = sampledIn(fields)
  const rest = Object.fromEntries(
    kept.flatMap(field => {
      const value = fields[field]
      return typeof value === 'string' || typeof value === 'number' ? [[field, value] as const] : []
    }),
  )
  const worked = set.answers === 'worked' ? firstText(fields, set.answer) : undefined
  const solution = worked === undefined ? {} : { solution: worked.slice(0, worked.lastIndexOf('####')).trim() }
  return { problem, answer, sampled, id: firstText(fields, ids), rest: { ...rest, ...solution } }
}

/** Returns the answers that models gave, in any of the forms in which rows list them. */
export function sampledIn(fields: Readonly<Record<string, unknown>>): readonly string[] {
  const found = samples.map(name => fields[name]).find(value => value !== undefined && value !== null)
  const list = Array.isArray(found) ? found : [found]
  return list.flatMap(entry => {
    const text =
      typeof entry === 'object' && entry !== null
        ? firstText(entry as Readonly<Record<string, unknown>>, ['answer', 'text', 'content', 'generated_solution'])
        : textOf(entry)
    return text === undefined ? [] : [extractAnswer(text, 'anywhere') ?? text]
  })
}

function answerOf(fields: Readonly<Record<string, unknown>>, set: ProblemSet): string | undefined {
  const stated = firstText(fields, set.answer)
  if (set.answers === 'worked') {
    const mark = stated?.lastIndexOf('####') ?? -1
    const text = mark < 0 ? '' : stated!.slice(mark + 4).trim()
    return text === '' ? undefined : (normalizeInteger(text) ?? text)
  }
  const boxed = stated?.includes('\\boxed') ? (extractAnswer(stated, 'anywhere') ?? stated) : stated
  if (boxed !== undefined) return boxed
  // Sets without an answer field have the answer in their worked solution.
  const solution = firstText(fields, ['solution'])
  return solution === undefined ? undefined : (extractAnswer(solution, 'anywhere') ?? undefined)
}

function firstText(fields: Readonly<Record<string, unknown>>, names: readonly string[]): string | undefined {
  for (const name of names) {
    const text = textOf(at(fields, name))
    if (text !== undefined) return text
  }
  return undefined
}

const at = (fields: Readonly<Record<string, unknown>>, path: string): unknown =>
  path.split('.').reduce<unknown>((inner, key) => (isObject(inner) ? inner[key] : undefined), fields)

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/**
 * Returns a text without outer blanks, a number as text, and of a list of messages the text of the last user message;
 * undefined for an empty text and for other values.
 */
function textOf(value: unknown): string | undefined {
  if (typeof value === 'string') return value.trim() === '' ? undefined : value.trim()
  if (typeof value === 'number' && Number.isFinite(value)) return String(value)
  if (!Array.isArray(value)) return undefined
  const user = value.findLast(message => isObject(message) && message.role === 'user') as
    | { content?: unknown }
    | undefined
  return typeof user?.content === 'string' ? textOf(user.content) : undefined
}
