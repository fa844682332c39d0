/**
 * Reads rows with a question and an answer, as benchmark owners publish them: JSON lines, or one JSON array.
 *
 * in   the text of a file, and the names of its fields        out  problems; the number of dropped rows, by reason
 * Invariant: every row is a problem or counted once under one reason; of two rows with the same question the first is
 * kept. Either all usable rows have an id of their own or none has: an id that occurs twice, or is missing, throws with
 * its line. Without ids, a problem's id is the number of its line (in an array: of its row).
 */
import { normalizeInteger } from '../../kernels/grading/integers'
import { parseExactJson } from '../../kernels/toolCalls/exactJson'
import { badRow, isObject, type Problem, type Problems, problemCollector, rowsOf } from './problem'

export interface RowFormat {
  /** Names of the question's field, in order of preference; `answer` has the names of the answer's field. */
  readonly question: readonly string[]
  readonly answer: readonly string[]
  /** Form of the answer. text: any text. integer: an integer. worked: the integer after the last `####`. */
  readonly truth: 'text' | 'integer' | 'worked'
}

const ids = ['id', 'unique_id', 'problem_idx', 'ID']

/** Parses the rows. @throws TroupeError config.bad_data for an id that occurs twice or is missing */
export function parseProblems(text: string, format: RowFormat): Problems {
  const { add, drop, result } = problemCollector()
  const questions = new Set<string>()
  const rows = rowsOf(text, parseExactJson)
  const withId = rows.find(({ row }) => isObject(row) && first(row, ids) !== undefined)
  for (const { row, place } of rows) {
    const problem = problemOf(row, place, format)
    if (typeof problem === 'string') drop(problem)
    else if (withId !== undefined && first(row as Readonly<Record<string, unknown>>, ids) === undefined)
      throw badRow(place, `the row has no id, but line ${withId.place} has one`)
    else if (questions.has(problem.question)) drop('repeats the question of an earlier row')
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
  if (truth === undefined) return format.truth === 'worked' ? 'no integer after ####' : 'answer is not an integer'
  return { id: first(row, ids) ?? String(place), question, truth }
}

/** Returns the value of the first of these fields that has one; a number as its text. */
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
