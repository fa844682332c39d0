/**
 * A benchmark's problem, and how a file of them is refused.
 *
 * Invariant: every row of a file is a problem, or counted under one reason, or (an id twice, an id that is missing where
 * others have one) ends the reading with the line that is wrong: an evaluation over the wrong rows is no evaluation.
 */
import type { ChatMessage } from '../../messages/facts'
import { TroupeError } from '../../runtime/errors'
import { withoutBom } from '../../runtime/settings/withoutBom'

export interface Problem {
  readonly id: string
  readonly question: string
  readonly truth: string
  /** What the reward needs besides the truth. */
  readonly metadata?: Readonly<Record<string, unknown>>
  /** Instead of a system message and the question. */
  readonly messages?: readonly ChatMessage[]
}

export interface Problems {
  readonly problems: readonly Problem[]
  /** Rows that are no problems, by reason. */
  readonly dropped: Readonly<Record<string, number>>
}

/** A row of JSONL or of a JSON array, and where it stands: a line, or a place in the array, from 1. */
export interface Row {
  /** undefined where a line is no JSON. */
  readonly row: unknown
  readonly place: number
}

/**
 * JSON lines, or one JSON array. Empty lines are not counted.
 * @param parse  of a line's text, or of the array's; it throws where that is no JSON
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

/** Gathers problems row by row, and refuses ids that are there twice. */
export function gathering(): {
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
      if (before !== undefined) throw badRow(place, `id '${problem.id}' stands at line ${before} already`)
      places.set(problem.id, place)
      problems.push(problem)
    },
    drop(reason) {
      dropped[reason] = (dropped[reason] ?? 0) + 1
    },
    result: { problems, dropped },
  }
}

export const badRow = (place: number, why: string, hint = 'every row needs an id of its own') =>
  new TroupeError('config.bad_data', { boundary: 'config', retriable: false, message: `line ${place}: ${why}`, hint })
