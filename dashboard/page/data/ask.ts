/**
 * Asks the server for data, or finds it in the page itself if the page is a static export.
 *
 * in   a path below /api        out  its JSON
 * @throws Failure with the server's code, message and hint if it refuses; the error of `fetch` if it cannot be reached
 */
import { tokenHeaders } from './token'

export class Failure extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly hint: string | undefined,
  ) {
    super(message)
  }
}

const embedded = document.getElementById('troupe-data')
const kept =
  embedded === null ? undefined : (JSON.parse(embedded.textContent ?? '{}') as Readonly<Record<string, unknown>>)

/** True if this page is a static export, which contains its data, so that there is no server to ask. */
export const isStatic = kept !== undefined

export async function ask<T>(path: string, signal?: AbortSignal): Promise<T> {
  if (kept !== undefined) return fromExport<T>(path)
  return answerOf<T>(
    await fetch(`api/${path}`, { headers: tokenHeaders(), ...(signal === undefined ? {} : { signal }) }),
  )
}

/** Sends a request that starts or stops an action. @throws as `ask` */
export async function send<T>(path: string, body: object): Promise<T> {
  const headers = { ...tokenHeaders(), 'content-type': 'application/json' }
  return answerOf<T>(await fetch(`api/${path}`, { method: 'POST', headers, body: JSON.stringify(body) }))
}

async function answerOf<T>(response: Response): Promise<T> {
  const value = (await response.json()) as T & {
    readonly code?: string
    readonly message?: string
    readonly hint?: string
  }
  if (response.ok) return value
  throw new Failure(value.code ?? 'dashboard.failed', value.message ?? response.statusText, value.hint)
}

interface Rows {
  readonly total: number
  readonly rows: readonly object[]
}

/** An export holds each list whole, under the list's path without a query; this cuts the requested page out of it. */
function fromExport<T>(path: string): T {
  const [name = '', text = ''] = path.split('?')
  const query = new URLSearchParams(text)
  const value = kept![path] ?? kept![name]
  if (value === undefined)
    throw new Failure(
      'export.absent',
      'this export does not contain that view',
      '`troupe dashboard` shows every view; `troupe replay export --all --format html` exports all trajectories',
    )
  const list = value as Partial<Rows>
  if (!Array.isArray(list.rows)) return value as T
  const rows = list.rows.filter(row => matches(row as Readonly<Record<string, unknown>>, query))
  const offset = Number(query.get('offset') ?? 0)
  return {
    ...value,
    total: rows.length,
    offset,
    rows: rows.slice(offset, offset + Number(query.get('limit') ?? 1000)),
  } as T
}

/** Applies the filters that need no server. An export does not offer the other filters of `replay ls`. */
function matches(row: Readonly<Record<string, unknown>>, query: URLSearchParams): boolean {
  for (const name of ['step', 'status', 'purpose', 'selection', 'task']) {
    const wanted = query.get(name)
    if (wanted !== null && wanted !== '' && name in row && String(row[name]) !== wanted) return false
  }
  return query.get('toolErrors') !== '1' || !('toolErrors' in row) || Number(row.toolErrors) > 0
}
