/**
 * Reads GSM8K rows: `{"question": …, "answer": …}` with an answer ending in `#### N`, or `{"problem": …, "solution": …,
 * "answer": N}` as `troupe data gsm8k` writes them.
 *
 * in   the text of a JSONL file       out  rows with an integer answer; the number of dropped lines, by reason
 * Invariant: pure; no line makes it throw. Each line that is not empty is a row or counted once under one reason.
 */
import { normalizeInteger } from '../../kernels/grading/integers'
import { parseExactJson } from '../../kernels/toolCalls/exactJson'
import { withoutBom } from '../../runtime/settings/withoutBom'

export interface Gsm8kRow {
  /** Number of the row's line in the file, 1-based. It identifies the row, whichever other rows are left out. */
  readonly line: number
  readonly question: string
  /** Worked answer of the row, with its calculator notes and without the final answer. */
  readonly solution: string
  /** Contents of the calculator notes, in order: `48/2=24` for `<<48/2=24>>`. */
  readonly notes: readonly string[]
  /** Final answer of the row: an integer in its shortest decimal form. */
  readonly truth: string
}

export interface Gsm8kRows {
  readonly rows: readonly Gsm8kRow[]
  /** Number of lines that are not usable rows, by reason. */
  readonly dropped: Readonly<Record<string, number>>
}

/** Parses the file's lines. Empty lines are skipped and do not count as dropped, since a file may end in them. */
export function parseGsm8k(jsonl: string): Gsm8kRows {
  const rows: Gsm8kRow[] = []
  const dropped: Record<string, number> = {}
  for (const [at, text] of withoutBom(jsonl).split('\n').entries()) {
    if (text.trim() === '') continue
    const row = parseRow(text)
    if (typeof row === 'string') dropped[row] = (dropped[row] ?? 0) + 1
    else rows.push({ line: at + 1, ...row })
  }
  return { rows, dropped }
}

function parseRow(text: string): Omit<Gsm8kRow, 'line'> | string {
  let row: unknown
  try {
    row = parseExactJson(text)
  } catch {
    return 'not JSON'
  }
  if (typeof row !== 'object' || row === null) return 'not an object'
  const { problem, solution: worked, ...published } = row as Record<string, unknown>
  const prepared = typeof problem === 'string' && typeof worked === 'string'
  const question = prepared ? problem : published.question
  const answer = prepared ? `${worked}\n#### ${String(published.answer)}` : published.answer
  if (typeof question !== 'string' || question.trim() === '') return 'no question'
  if (typeof answer !== 'string') return 'no answer'
  const mark = answer.lastIndexOf('####')
  if (mark < 0) return 'no final answer'
  const truth = normalizeInteger(answer.slice(mark + 4))
  if (truth === undefined) return 'answer is not an integer'
  const solution = answer.slice(0, mark).trim()
  const notes = [...solution.matchAll(/<<([^<>]*)>>/g)].map(found => found[1]!)
  return { question: question.trim(), solution, notes, truth }
}
