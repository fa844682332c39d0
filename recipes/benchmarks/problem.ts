/**
 * Collects a benchmark's problems from the rows of a file.
 *
 * in   the text of a file
 * out  its rows with their line numbers (in an array: item numbers); problems, and the number of dropped rows by reason
 * Invariant: every row is a problem or counted under one reason. An id that occurs twice throws with its line, because
 * an evaluation over the wrong rows has no meaning.
 */
import type { ChatMessage } from '../../messages/facts'
import { TroupeError } from '../../runtime/errors'
import { withoutBom } from '../../runtime/settings/withoutBom'

export interface Problem {
  readonly id: string
  readonly question: string
  readonly truth: string
  /** Data that the reward needs besides the truth. */
  readonly metadata?: Readonly<Record<string, unknown>>
  /** Whole prompt of the problem; the recipe's system message, prefix and `question` are then not used. */
  readonly messages?: readonly ChatMessage[]
}

export interface Problems {
  readonly problems: readonly Problem[]
  /** Number of rows that are not problems, by reason. */
  readonly dropped: Readonly<Record<string, number>>
}

/** One row of JSONL or of a JSON array. */
export interface Row {
  /** Parsed content of the row; undefined if the line is not JSON. */
  readonly row: unknown
  /** Number of the line, or of the item in the array, 1-based. */
  readonly place: number
}

/**
 * Splits JSON lines, or one JSON array, into rows. Empty lines are skipped.
 * @param parse  parser for the text of a line or of the array; it throws on text that is not JSON
 */
export function rowsOf(content: string, parse: (text: string) => unknown = JSON.parse): readonly Row[] {
  const text = withoutBom(content)
  const parsed = (json: string) => {
    try {
      return parse(json)
    } catch {
      return undefined
    }
  }
  if (text.trimStart().startsWith('[')) {
    const rows = parsed(text)
    if (Array.isArray(rows)) return rows.map((row, at) => ({ row, place: at + 1 }))
  }
  const lines = text.split('\n').map((line, at) => ({ line, place: at + 1 }))
  return lines.filter(({ line }) => line.trim() !== '').map(({ line, place }) => ({ row: parsed(line), place }))
}

export const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Collects problems row by row; throws on an id that occurs twice. */
export function problemCollector(): {
  readonly add: (problem: Problem, place: number) => void
  readonly drop: (reason: string) => void
  readonly result: Problems
} {
  const problems: Problem[] = []
  const places = new Map<string, number>()
  const dropped: Record<string, number> = {}
  return {
    add(problem, place) {
      const before = places.get(problem.id)
      if (before !== undefined) throw badRow(place, `id '${problem.id}' is already used at line ${before}`)
      places.set(problem.id, place)
      problems.push(problem)
    },
    drop(reason) {
      dropped[reason] = (dropped[reason] ?? 0) + 1
    },
    result: { problems, dropped },
  }
}

/** Makes the error about a row: `line PLACE: WHY`. `place`: the row's line; in an array, its number. */
export const badRow = (place: number, why: string, hint = 'give every row an id of its own') =>
  new TroupeError('config.bad_data', { boundary: 'config', retriable: false, message: `line ${place}: ${why}`, hint })
