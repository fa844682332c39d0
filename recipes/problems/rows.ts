/**
 * Reads the rows of a recipe's files: `{"problem": …, "answer": …}` on each line.
 *
 * in   the text of a JSONL file        out  rows; the number of dropped lines, by reason
 * Invariant: pure; no line makes it throw. Each line that is not empty is a row or counted once. A row without an id
 * takes its line number, which identifies it whichever other rows are dropped.
 */
import { parseExactJson } from '../../kernels/toolCalls/exactJson'
import { withoutBom } from '../../runtime/settings/withoutBom'

export interface ProblemRow {
  readonly id: string
  readonly problem: string
  readonly answer: string
  /** Other fields of the row, for rewards that need more than an answer. */
  readonly rest: Readonly<Record<string, unknown>>
}

export interface ProblemRows {
  readonly rows: readonly ProblemRow[]
  readonly dropped: Readonly<Record<string, number>>
  /** The first dropped line, and its reason; absent if none was dropped. */
  readonly firstDropped?: { readonly line: number; readonly reason: string }
}

const names = { problem: ['problem', 'question', 'prompt'], answer: ['answer', 'truth', 'expected_answer'], id: ['id'] }

/** Parses the file's lines. Empty lines are not counted. */
export function parseProblemRows(jsonl: string): ProblemRows {
  const rows: ProblemRow[] = []
  const dropped: Record<string, number> = {}
  const seen = new Set<string>()
  let firstDropped: ProblemRows['firstDropped']
  for (const [at, text] of withoutBom(jsonl).split('\n').entries()) {
    if (text.trim() === '') continue
    const row = parseRow(text, at + 1)
    const reason = typeof row === 'string' ? row : seen.has(row.id) ? 'repeats the id of an earlier row' : undefined
    if (reason !== undefined) {
      dropped[reason] = (dropped[reason] ?? 0) + 1
      firstDropped ??= { line: at + 1, reason }
    } else if (typeof row !== 'string') {
      seen.add(row.id)
      rows.push(row)
    }
  }
  return { rows, dropped, ...(firstDropped === undefined ? {} : { firstDropped }) }
}

function parseRow(text: string, line: number): ProblemRow | string {
  let row: unknown
  try {
    row = parseExactJson(text)
  } catch {
    return 'not JSON'
  }
  if (typeof row !== 'object' || row === null || Array.isArray(row)) return 'not an object'
  const fields = row as Readonly<Record<string, unknown>>
  const problem = textOf(fields, names.problem)
  if (problem === undefined) return 'no problem'
  const answer = textOf(fields, names.answer)
  if (answer === undefined) return 'no answer'
  const known = new Set(Object.values(names).flat())
  const rest = Object.fromEntries(Object.entries(fields).filter(([key]) => !known.has(key)))
  return { id: textOf(fields, names.id) ?? String(line), problem, answer, rest }
}

/** Returns the value of the first of these fields that has one; a number as its text. */
function textOf(row: Readonly<Record<string, unknown>>, names: readonly string[]): string | undefined {
  for (const name of names) {
    const value = row[name]
    if (typeof value === 'string' && value.trim() !== '') return value.trim()
    if (typeof value === 'number' && Number.isFinite(value)) return String(value)
  }
  return undefined
}
