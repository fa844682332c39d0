/**
 * Answers the page's requests for data: a path and a query in, JSON out. The server sends the answers; a static export
 * contains them.
 *
 * in   `/api/runs/RUN/…`        out  a value of api.ts; undefined for an unknown path
 * Invariant: lists are paged by offset, and the rows of one answer are bounded.
 */
import { TroupeError } from '../../runtime/errors'
import type { CommandPlace } from './commands'
import type { OpenedRun } from './openedRun'
import type { OpenRuns } from './openRuns'
import { badQuery, filterOf, pageOf, sortOf } from './query'
import { cluster } from './views/cluster'
import { topicEvents, trajectoryEvents } from './views/events'
import { groupReport } from './views/group'
import { lanes } from './views/lanes'
import { groupList, trajectoryList } from './views/lists'
import { overview } from './views/overview'
import { tokenPage } from './views/tokens'
import { trajectoryReport } from './views/trajectory'
import { why } from './views/why'

/** Upper bounds on the rows of one answer. */
const most = { trajectories: 500, groups: 500, events: 200, tokens: 8192, lanes: 512 }

export interface Asked {
  readonly run: OpenedRun
  readonly place: CommandPlace
  /** Parts of the path after the run's name. */
  readonly path: readonly string[]
  readonly query: URLSearchParams
}

/** Answers a request about one run; undefined for an unknown path. */
export async function answer({ run, place, path, query }: Asked): Promise<unknown> {
  const [kind, first, second, third] = path
  switch (path.length) {
    case 0:
      return overview(run, place)
    case 1:
      if (kind === 'trajectories')
        return trajectoryList(run, place, filterOf(query), sortOf(query), pageOf(query, most.trajectories))
      if (kind === 'groups') return groupList(run, place, filterOf(query), pageOf(query, most.groups))
      if (kind === 'lanes') return lanes(run, place, filterOf(query), pageOf(query, most.lanes))
      if (kind === 'why') return why(run, place, query.get('id')?.slice(0, 400))
      return kind === 'cluster' ? cluster(run, place) : undefined
    case 2:
      return kind === 'groups' ? groupReport(run, place, first!) : undefined
    case 3:
      if (kind === 'trajectories') return trajectoryReport(run, place, `${first}/${second}`)
      if (kind !== 'log') return undefined
      return topicEvents(run, place, first!, partitionOf(second!), pageOf(query, most.events))
    case 4: {
      const trajectory = `${first}/${second}`
      if (kind !== 'trajectories') return undefined
      if (third === 'events') return trajectoryEvents(run, place, trajectory, pageOf(query, most.events))
      return third === 'tokens' ? tokenPage(run, place, trajectory, pageOf(query, most.tokens)) : undefined
    }
    default:
      return undefined
  }
}

const partitionOf = (text: string): number => {
  if (/^\d{1,6}$/.test(text)) return Number(text)
  throw badQuery(`the partition is ${JSON.stringify(text.slice(0, 20))}; expected a number of at most 6 digits`)
}

export const placeOfRun = ({ options }: OpenRuns, run: string): CommandPlace => ({
  ...{ bus: options.bus, run, directory: options.directory },
})

/** HTTP status of an error. */
export function statusOf(error: unknown): number {
  if (!(error instanceof TroupeError)) return 500
  if (error.code === 'dashboard.action_running') return 409
  if (error.code === 'dashboard.bad_query' || error.code === 'replay.bad_filter' || error.code === 'replay.bad_place')
    return 400
  const absent = [
    'run.not_found',
    'run.bad_name',
    'replay.no_match',
    'replay.ambiguous',
    'replay.no_request',
    'replay.run_empty',
  ]
  return absent.includes(error.code) ? 404 : 500
}
