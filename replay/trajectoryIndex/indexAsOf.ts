/**
 * Derives the index of a run as of a past record (`--at`) from the index of the whole run.
 *
 * in   today's index, the end offsets of `--at`        out  the index at that time
 * Groups whose records all come before the end keep today's rows. The rows of the other groups are rebuilt from their
 * records before the end; trajectories without such a record are left out.
 * Invariant: the derived rows equal those of a log that ends at the position `--at`.
 */
import type { Place } from '../log/place'
import type { RecordedRun } from '../log/recordedRun'
import { type IndexedPartition, type IndexView, readIndex, writeIndex } from './indexFile'
import { type GroupRow, newGroup, newRow, type Places } from './rows'

type Spot = Omit<Place, 'topic'>

export async function indexAsOf(recorded: RecordedRun, today: IndexView): Promise<IndexView> {
  const { head } = today
  const ends = await Promise.all(head.partitions.map((_, p) => recorded.endOf('trajectories', p)))
  const before = (places: Places): Spot[] =>
    spotsOf(places).filter(({ partition, offset }) => offset < ends[partition]!)
  const isPast = (places: Places) => before(places).length * 2 === places.length

  const rows = today.rows()
  const open = new Set<GroupRow>()
  for (const group of rows.groups.values()) if (!isPast(group.places)) open.add(group)
  for (const row of rows.rows.values()) if (!isPast(row.places)) open.add(row.group)

  const wanted = head.partitions.flatMap(({ claims }, partition) => before(claims.flatMap(claim => [partition, claim])))
  rows.partitions.length = 0
  for (const group of open) {
    wanted.push(...before(group.places))
    rows.groups.set(group.id, newGroup(group.id))
  }
  for (const row of rows.rows.values()) {
    if (!open.has(row.group)) continue
    const spots = before(row.places)
    wanted.push(...spots)
    if (spots.length === 0) rows.rows.delete(row.id)
    // The empty row is inserted here, in the order of the requests; its records are read later, in the log's order.
    else rows.rows.set(row.id, newRow(row.id, rows.group(row.group.id)))
  }
  wanted.sort((a, b) => a.partition - b.partition || a.offset - b.offset)
  await recorded.pick(
    'trajectories',
    wanted,
    entry => rows.take(entry),
    (_, record) => rows.place(record),
  )

  const partitions = head.partitions.map(({ oldest }, p): IndexedPartition => {
    const { claims, epoch, curriculum } = rows.partition(p)
    return { oldest, next: Math.max(oldest, ends[p]!), claims, epoch, curriculum, first: null, last: null }
  })
  const faults = head.faults.filter(({ partition, offset }) => offset < ends[partition]!)
  for (const fault of faults) recorded.note(fault)
  return readIndex(writeIndex(rows, { ...head, partitions, faults }))!
}

function spotsOf(places: Places): Spot[] {
  const spots: Spot[] = []
  for (let i = 0; i < places.length; i += 2) spots.push({ partition: places[i]!, offset: places[i + 1]! })
  return spots
}
