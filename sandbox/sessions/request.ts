/**
 * Checks a request for a session's cell, before it waits for the cells before it.
 *
 * in   a RunRequest with its position in a session      out  the call, its history; or the fault in words
 */
import { type Call, callOf } from '../limits'
import type { RunRequest, SessionCell, SessionPlace } from '../sandbox'

type Limits = Pick<RunRequest, 'timeoutMs' | 'memoryMb'>

/** Input of a cell: all that is needed to run the cell again. */
export type CellInput = Pick<RunRequest, 'code' | 'stdin' | 'mode' | 'maxOutputBytes'> & Limits

export interface CheckedCell {
  readonly call: Call
  readonly input: CellInput
  readonly id: string
  readonly cell: number
  readonly history: readonly CellInput[]
}

export function checkCell(
  request: RunRequest,
  place: SessionPlace,
  noSessions: string | undefined,
): CheckedCell | string {
  const { code, stdin, mode = 'cell', timeoutMs, memoryMb } = request
  const call = callOf({ ...request, mode }, 0)
  if (typeof call === 'string') return call
  if (noSessions !== undefined) return noSessions
  if (call.maxProcesses > 0) return 'a cell of a session may not start processes: leave maxProcesses out'
  const { id, cell } = place
  if (typeof id !== 'string' || !Number.isInteger(cell) || cell < 0) {
    return 'session must be {id, cell}: id a string, cell a whole number from 0'
  }
  const limits = { ...(timeoutMs === undefined ? {} : { timeoutMs }), ...(memoryMb === undefined ? {} : { memoryMb }) }
  const history = historyOf(place.history ?? [], limits)
  return typeof history === 'string' ? history : { call, input: inputOf(code, stdin, mode, limits), id, cell, history }
}

/** Cells of a history have no limits of their own: the limits of the request apply. */
function historyOf(history: readonly SessionCell[], limits: Limits): readonly CellInput[] | string {
  if (!Array.isArray(history)) return `session.history must be a list of {code, stdin?}, not ${typeof history}`
  const cells: CellInput[] = []
  for (const [n, cell] of (history as readonly (SessionCell | null)[]).entries()) {
    if (typeof cell !== 'object' || cell === null) return `session.history[${n}] must be {code, stdin?}`
    const input = inputOf(cell.code, cell.stdin, 'cell', limits)
    const call = callOf({ id: 'history', ...input }, 0)
    if (typeof call === 'string') return `session.history[${n}]: ${call}`
    cells.push(input)
  }
  return cells
}

/** When a cell is run again, no output is captured, since nobody reads it. */
function inputOf(code: string, stdin: string | undefined, mode: 'script' | 'cell', limits: Limits): CellInput {
  return { code, mode, maxOutputBytes: 0, ...limits, ...(stdin === undefined ? {} : { stdin }) }
}
