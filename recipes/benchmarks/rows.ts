/**
 * Rows of benchmarks with a question and an answer, as their owners publish them: JSON lines, or one JSON array.
 *
 * in   the text of a file, and what its fields are called        out  problems; what was left out, counted by reason
 * Invariant: every row is a problem or counted once under one reason; of two rows with one question the first counts. Ids are
 * the rows' own, and all or none have one: an id that is there twice, or is missing, throws with its line. Without ids a row is
 * named by its place.
 */
import { normalizeInteger } from '../../kernels/grading/answer'
import { parseExactJson } from '../../kernels/toolCalls/exactJson'
import { badRow, gathering, isObject, type Problem, type Problems, rowsOf } from './problem'

export interface RowFormat {
  /** Names under which a row may have them, in order of preference. */
  readonly question: readonly string[]
  readonly answer: readonly string[]
  /** text: as it is. integer: must be one. worked: what follows the last `####`. */
  readonly truth: 'text' | 'integer' | 'worked'
}

const ids = ['id', 'unique_id', 'problem_idx', 'ID']

/** @throws TroupeError config.bad_data for an id that is there twice, or missing */
export function parseProblems(text: string, format: RowFormat): Problems {
  const { add, drop, result } = gathering()
  const questions = new Set<string>()
  const rows = rowsOf(text, parseExactJson)
  const withId = rows.find(({ row }) => isObject(row) && first(row, ids) !== undefined)
  for (const { row, place } of rows) {
    const problem = problemOf(row, place, format)
    if (typeof problem === 'string') drop(problem)
    else if (withId !== undefined && first(row as Readonly<Record<string, unknown>>, ids) === undefined)
      throw badRow(place, `has no id, as line ${withId.place} has one`)
    else if (questions.has(problem.question)) drop('question of a row before')
    else {
      questions.add(problem.question)
      add(problem, place)
    }
  }
  return result
}

function problemOf(row: unknown, place: number, format: RowFormat): Problem | string {
  if (row === undefined) return 'not JSON'
  if (!isObject(row)) return 'not an object'
  const question = first(row, format.question)
  if (question === undefined) return `no ${format.question[0]}`
  const answer = first(row, format.answer)
  if (answer === undefined) return `no ${format.answer[0]}`
  const truth = truthOf(answer, format.truth)
  if (truth === undefined) return format.truth === 'worked' ? 'no integer after ####' : 'answer not an integer'
  return { id: first(row, ids) ?? String(place), question, truth }
}

/** Numbers count as their text. */
function first(row: Readonly<Record<string, unknown>>, names: readonly string[]): string | undefined {
  for (const name of names) {
    const value = row[name]
    if (typeof value === 'string' && value.trim() !== '') return value.trim()
    if (typeof value === 'number' && Number.isFinite(value)) return String(value)
  }
  return undefined
}

function truthOf(answer: string, kind: RowFormat['truth']): string | undefined {
  if (kind === 'text') return answer
  if (kind === 'integer') return normalizeInteger(answer)
  const mark = answer.lastIndexOf('####')
  return mark < 0 ? undefined : normalizeInteger(answer.slice(mark + 4))
}
