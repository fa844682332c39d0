/**
 * Keeps the index of a run up to date while the run is written: each refresh reads only the new records and adds them.
 *
 * in   a recorded run        out  the index as of the latest refresh, which the other readers of the same run then use
 * Invariant: a refreshed index has the same rows as one that is built from the whole log. In a run of several
 * partitions their order may differ: new rows come last.
 */
import type { RecordedRun } from '../log/recordedRun'
import type { IndexView } from './indexFile'
import type { IndexRows } from './rows'
import { foldNewRecords, indexOf, replaceIndex } from './trajectoryIndex'

export interface FollowedIndex {
  readonly view: IndexView
  /** Number of refreshes that changed the index. */
  readonly version: number
  /** Adds new records to the index. Resolves with true if there were any. Calls that overlap share one refresh. */
  refresh(): Promise<boolean>
}

export async function followIndex(recorded: RecordedRun): Promise<FollowedIndex> {
  let view = await indexOf(recorded)
  let version = 0
  let rows: IndexRows | undefined
  let running: Promise<boolean> | undefined

  async function refresh(): Promise<boolean> {
    const { partitions } = view.head
    const ends = await Promise.all(partitions.map((_, p) => recorded.endOf('trajectories', p)))
    if (ends.every((end, p) => end <= partitions[p]!.next)) return false
    // Rows are copied out of the file once, when the run turns out to be live.
    rows ??= view.rows()
    const folded = rows
    const faults = await foldNewRecords(recorded, folded)
    const heads = partitions.map((head, p) => ({ ...head, ...pick(folded.partition(p)), first: null, last: null }))
    view = viewOfRows(folded, { ...view.head, partitions: heads, faults })
    replaceIndex(recorded, view)
    version++
    return true
  }

  return {
    get view() {
      return view
    },
    get version() {
      return version
    },
    refresh() {
      running ??= refresh().finally(() => {
        running = undefined
      })
      return running
    },
  }
}

const pick = ({ next, claims, epoch, curriculum }: ReturnType<IndexRows['partition']>) => ({
  ...{ next, claims, epoch, curriculum },
})

/** Wraps rows in memory as an index. The view shares the rows: the next refresh changes what the view shows. */
function viewOfRows(rows: IndexRows, head: IndexView['head']): IndexView {
  const list = [...rows.rows.values()]
  let numbers: ReadonlyMap<string, number> | undefined
  return {
    head,
    size: list.length,
    row: i => list[i]!,
    id: i => list[i]!.id,
    state: i => list[i]!.state,
    find(id) {
      numbers ??= new Map(list.map((row, i) => [row.id as string, i]))
      return numbers.get(id)
    },
    places: i => list[i]!.places,
    groupPlaces: i => list[i]!.group.places,
    rows: () => rows,
  }
}
