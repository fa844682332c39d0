/**
 * Rows of the benchmarks, as their owners publish them: JSON lines, or one JSON array.
 *
 * in   the text of a file, and what its fields are called        out  problems; what was left out, counted by reason
 * Invariant: pure, and no file can make it throw. Every row is a problem or counted once under one reason. A problem's id is
 * the row's own where it has one, else its place in the file; of two rows with one id, or one question, the first counts.
 */
import { normalizeInteger } from '../../kernels/answer'

export interface Problem {
  readonly id: string
  readonly question: string
  readonly truth: string
}

export interface Problems {
  readonly problems: readonly Problem[]
  /** Rows that are no problems, by reason. */
  readonly dropped: Readonly<Record<string, number>>
}

export interface RowFormat {
  /** Names under which a row may have them, in order of preference. */
  readonly question: readonly string[]
  readonly answer: readonly string[]
  /** text: as it is. integer: must be one. worked: what follows the last `####`. */
  readonly truth: 'text' | 'integer' | 'worked'
}

const ids = ['id', 'unique_id', 'problem_idx', 'ID']

export function parseProblems(text: string, format: RowFormat): Problems {
  const problems: Problem[] = []
  const dropped: Record<string, number> = {}
  const drop = (reason: string) => {
    dropped[reason] = (dropped[reason] ?? 0) + 1
  }
  const known = { ids: new Set<string>(), questions: new Set<string>() }
  for (const { row, place } of rowsOf(text)) {
    const problem = problemOf(row, place, format)
    if (typeof problem === 'string') drop(problem)
    else if (known.ids.has(problem.id)) drop('id of a row before')
    else if (known.questions.has(problem.question)) drop('question of a row before')
    else {
      known.ids.add(problem.id)
      known.questions.add(problem.question)
      problems.push(problem)
    }
  }
  return { problems, dropped }
}

/** `row` is undefined where a line is no JSON. Empty lines are not counted. */
function rowsOf(text: string): { row: unknown; place: number }[] {
  if (text.trimStart().startsWith('[')) {
    const rows = parsed(text)
    if (Array.isArray(rows)) return rows.map((row, at) => ({ row, place: at + 1 }))
  }
  const lines = text.split('\n').map((line, at) => ({ line, place: at + 1 }))
  return lines.filter(({ line }) => line.trim() !== '').map(({ line, place }) => ({ row: parsed(line), place }))
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

function problemOf(row: unknown, place: number, format: RowFormat): Problem | string {
  if (row === undefined) return 'not JSON'
  if (typeof row !== 'object' || row === null || Array.isArray(row)) return 'not an object'
  const fields = row as Readonly<Record<string, unknown>>
  const question = first(fields, format.question)
  if (question === undefined) return `no ${format.question[0]}`
  const answer = first(fields, format.answer)
  if (answer === undefined) return `no ${format.answer[0]}`
  const truth = truthOf(answer, format.truth)
  if (truth === undefined) return format.truth === 'worked' ? 'no integer after ####' : 'answer not an integer'
  return { id: first(fields, ids) ?? String(place), question, truth }
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
