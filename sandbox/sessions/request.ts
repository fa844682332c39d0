/**
 * A request for a session's cell, checked before it waits for its turn.
 *
 * in   a RunRequest with its place in a session      out  what to run, and what its history has; or what is wrong, in words
 */
import { type Call, callOf } from '../limits'
import type { RunRequest, SessionCell, SessionPlace } from '../sandbox'

type Limits = Pick<RunRequest, 'timeoutMs' | 'memoryMb'>

/** What it takes to run a cell again. */
export type Asked = Pick<RunRequest, 'code' | 'stdin' | 'mode' | 'maxOutputBytes'> & Limits

export interface Asking {
  readonly call: Call
  readonly asked: Asked
  readonly id: string
  readonly cell: number
  readonly history: readonly Asked[]
}

export function askingOf(request: RunRequest, place: SessionPlace, noSessions: string | undefined): Asking | string {
  const { code, stdin, mode = 'cell', timeoutMs, memoryMb } = request
  const call = callOf({ ...request, mode }, 0)
  if (typeof call === 'string') return call
  if (noSessions !== undefined) return noSessions
  if (call.maxProcesses > 0) return 'the cells of a session may start no processes: leave maxProcesses out'
  const { id, cell } = place
  if (typeof id !== 'string' || !Number.isInteger(cell) || cell < 0) {
    return 'session must be {id, cell}, cells count from 0'
  }
  const limits = { ...(timeoutMs === undefined ? {} : { timeoutMs }), ...(memoryMb === undefined ? {} : { memoryMb }) }
  const history = historyOf(place.history ?? [], limits)
  return typeof history === 'string' ? history : { call, asked: askedOf(code, stdin, mode, limits), id, cell, history }
}

/** A history tells no limits of its cells: they have those of the request. */
function historyOf(history: readonly SessionCell[], limits: Limits): readonly Asked[] | string {
  if (!Array.isArray(history)) return `session.history must be a list of {code, stdin?}, not ${typeof history}`
  const cells: Asked[] = []
  for (const [n, cell] of (history as readonly (SessionCell | null)[]).entries()) {
    if (typeof cell !== 'object' || cell === null) return `session.history[${n}] must be {code, stdin?}`
    const asked = askedOf(cell.code, cell.stdin, 'cell', limits)
    const call = callOf({ id: 'history', ...asked }, 0)
    if (typeof call === 'string') return `session.history[${n}]: ${call}`
    cells.push(asked)
  }
  return cells
}

/** Nobody reads what it prints when it runs again. */
function askedOf(code: string, stdin: string | undefined, mode: 'script' | 'cell', limits: Limits): Asked {
  return { code, mode, maxOutputBytes: 0, ...limits, ...(stdin === undefined ? {} : { stdin }) }
}
