/**
 * Makes the dashboard as one file: the same page with its data inside, which opens without a server.
 *
 * in   a recorded run, a function that selects trajectories        out  HTML
 * Invariant: data stands in a JSON block that no browser executes, with every `<` escaped; the content security policy
 * allows only the page's own script and style, by their digests.
 */
import { createHash } from 'node:crypto'
import { groupOf, type TrajectoryId } from '../../messages/ids'
import type { RecordedRun } from '../../replay/log/recordedRun'
import type { GroupLine, Lane, Overview, Paged, RunLine, TrajectoryLine } from '../api'
import { answer } from './answers'
import { OpenedRun } from './openedRun'
import { lineOf } from './openRuns'
import { pageFiles } from './pageFiles'

/** Number of rows that each request for a part of a whole list asks for. */
const rowsAtOnce = 500

export async function staticPage(recorded: RecordedRun, wants: (id: TrajectoryId) => boolean): Promise<string> {
  const files = await pageFiles()
  const text = (name: string) => files.get(name)!.bytes.toString('utf8')
  const run = await OpenedRun.over(recorded)
  const data = JSON.stringify(await answers(run, wants)).replaceAll('<', '\\u003c')
  // `</script` would end the element, wherever it stands.
  const script = text('page.js').replaceAll('</script', '<\\/script')
  const style = text('page.css')
  const hash = (of: string) => `'sha256-${createHash('sha256').update(of).digest('base64')}'`
  const policy = `default-src 'none'; script-src ${hash(script)}; style-src ${hash(style)}; img-src data:; base-uri 'none'; form-action 'none'`
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="${policy}"><meta name="referrer" content="no-referrer">
<title>Troupe</title><link rel="icon" href="data:,"><style>${style}</style></head><body><div id="page"></div>
<script type="application/json" id="troupe-data">${data}</script>
<script>${script}</script></body></html>
`
}

/**
 * Returns the answers that the export contains, by path: at most 8192 tokens and 200 events of a trajectory, and 256
 * lanes of a step. It contains no records of the log's partitions and no waits.
 */
async function answers(
  run: OpenedRun,
  wants: (id: TrajectoryId) => boolean,
): Promise<Readonly<Record<string, unknown>>> {
  const { recorded } = run
  const place = { bus: recorded.address, run: recorded.run as string, directory: undefined }
  const base = `runs/${encodeURIComponent(place.run)}`
  const ask = (path: readonly string[], query = '') => answer({ run, place, path, query: new URLSearchParams(query) })
  const whole = async <T>(path: readonly string[], query = ''): Promise<Paged<T>> => {
    let page = (await ask(path, `${query}&limit=${rowsAtOnce}`)) as Paged<T>
    const rows = [...page.rows]
    while (rows.length < page.total && page.rows.length > 0) {
      page = (await ask(path, `${query}&limit=${rowsAtOnce}&offset=${rows.length}`)) as Paged<T>
      rows.push(...page.rows)
    }
    return { ...page, offset: 0, total: rows.length, rows }
  }
  const only = <T>(page: Paged<T>, isWanted: (row: T) => boolean): Paged<T> => {
    const rows = page.rows.filter(isWanted)
    return { ...page, rows, total: rows.length }
  }
  const trajectories = only(await whole<TrajectoryLine>(['trajectories']), one => wants(one.trajectory as TrajectoryId))
  const groups = new Set(trajectories.rows.map(one => groupOf(one.trajectory as TrajectoryId) as string))
  const steps = new Set(trajectories.rows.map(({ step }) => step))
  const overview = (await ask([])) as Overview
  const found: Record<string, unknown> = {
    runs: [lineOf(place.run, run)] satisfies readonly RunLine[],
    [base]: { ...overview, state: overview.state === 'live' ? 'cut-off' : overview.state },
    [`${base}/trajectories`]: trajectories,
    [`${base}/groups`]: only(await whole<GroupLine>(['groups']), one => groups.has(one.group)),
    [`${base}/cluster`]: await ask(['cluster']),
  }
  for (const step of steps) {
    const lanes = (await ask(['lanes'], `step=${step}&limit=256`)) as Paged<Lane>
    found[`${base}/lanes?step=${step}&limit=256`] = only(lanes, one => wants(one.trajectory as TrajectoryId))
  }
  for (const group of groups) found[`${base}/groups/${encodeURIComponent(group)}`] = await ask(['groups', group])
  for (const { trajectory } of trajectories.rows) {
    const [group = '', member = ''] = trajectory.split('/')
    const path = `${base}/trajectories/${encodeURIComponent(group)}/${member}`
    found[path] = await ask(['trajectories', group, member])
    found[`${path}/tokens`] = await ask(['trajectories', group, member, 'tokens'], 'limit=8192')
    found[`${path}/events`] = await ask(['trajectories', group, member, 'events'], 'limit=200')
  }
  return found
}
