/**
 * Parses the query of a request: offset, limit, sort order, filters.
 *
 * in   a query        out  numbers and the sort order, checked; text filters, which `listTrajectories` checks later
 * @throws TroupeError dashboard.bad_query; the server answers it with status 400
 */
import type { TrajectoryFilter } from '../../replay/trajectories/filter'
import { TroupeError } from '../../runtime/errors'
import type { PageOf, SortedBy } from './views/lists'

export const badQuery = (message: string): TroupeError =>
  new TroupeError('dashboard.bad_query', { boundary: 'cli', retriable: false, message })

export function numberOf(
  query: URLSearchParams,
  name: string,
  [least, most, usual]: readonly [number, number, number],
): number {
  const text = query.get(name)
  if (text === null || text === '') return usual
  const value = Number(text)
  if (Number.isInteger(value) && value >= least && value <= most) return value
  throw badQuery(`${name} is ${JSON.stringify(text.slice(0, 40))}; expected a whole number from ${least} to ${most}`)
}

/** Offset and number of rows; `most` bounds the rows of one answer. */
export const pageOf = (query: URLSearchParams, most: number): PageOf => ({
  offset: numberOf(query, 'offset', [0, 2 ** 52, 0]),
  limit: numberOf(query, 'limit', [1, most, Math.min(most, 100)]),
})

const sorts: readonly SortedBy[] = ['requested', 'newest', 'reward', 'tokens', 'errors']

export function sortOf(query: URLSearchParams): SortedBy {
  const text = query.get('sort') ?? 'requested'
  const sort = sorts.find(one => one === text)
  if (sort !== undefined) return sort
  throw badQuery(`sort is ${JSON.stringify(text.slice(0, 40))}; expected one of ${sorts.join(', ')}`)
}

const texts = ['status', 'purpose', 'reward', 'group', 'task', 'selection', 'text'] as const

/** Reads the filters of `replay ls`. Numbers are checked here, texts later by `listTrajectories`. */
export function filterOf(query: URLSearchParams): TrajectoryFilter {
  const given = (name: string) => {
    const text = query.get(name)
    return text === null || text === '' ? [] : [[name, text.slice(0, 1000)] as const]
  }
  const number = (name: string) =>
    given(name).length === 0 ? [] : [[name, numberOf(query, name, [0, 2 ** 31, 0])] as const]
  const flag = (name: string) => (query.get(name) === '1' ? [[name, true] as const] : [])
  return Object.fromEntries([
    ...texts.flatMap(given),
    ...number('step'),
    ...number('policy'),
    ...flag('toolErrors'),
    ...flag('multiTurn'),
  ]) as TrajectoryFilter
}
