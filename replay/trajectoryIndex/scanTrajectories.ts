/**
 * Reads the records of some trajectories by the run's index: a few reads, while a scan of a large log takes seconds. If
 * the wanted records are more than a fifth of all, one scan of the log reads them.
 *
 * in   which trajectories
 * out  their facts, those about their groups, and every claim (a fact that changes owners), in each partition's order
 */
import { groupOf, type TrajectoryId } from '../../messages/ids'
import type { Entry } from '../../runtime/journal/journal'
import type { Place } from '../log/place'
import type { RecordedRun } from '../log/recordedRun'
import type { IndexView } from './indexFile'
import { indexOf } from './trajectoryIndex'

/** Share of all records above which a full scan is quicker than reading single records. */
const mostPicked = 0.2

export async function scanTrajectories(
  recorded: RecordedRun,
  wants: (id: TrajectoryId) => boolean,
  take: (entry: Entry) => unknown,
): Promise<void> {
  const places = placesOf(await indexOf(recorded), wants)
  if (places !== undefined) {
    await recorded.pick('trajectories', places, take)
    return
  }
  const groups = new Map<string, boolean>()
  const ofWanted = (group: string) => groups.get(group) === true
  await recorded.scan('trajectories', take, ({ trajectory, group, type }) => {
    if (trajectory === undefined || group === undefined)
      return type?.startsWith('group.') !== true || ofWanted(group ?? '')
    const wanted = wants(trajectory as TrajectoryId)
    if (wanted) groups.set(group, true)
    return wanted
  })
}

/**
 * Positions of the wanted trajectories' records, of those about their groups and of all claims; undefined when they are
 * too many to be read one by one.
 */
function placesOf(index: IndexView, wants: (id: TrajectoryId) => boolean): Omit<Place, 'topic'>[] | undefined {
  const { partitions } = index.head
  const records = partitions.reduce((sum, { oldest, next }) => sum + next - oldest, 0)
  const places: Omit<Place, 'topic'>[] = partitions.flatMap(({ claims }, partition) =>
    claims.map(offset => ({ partition, offset })),
  )
  const add = (pairs: readonly number[]) => {
    for (let i = 0; i < pairs.length; i += 2) places.push({ partition: pairs[i]!, offset: pairs[i + 1]! })
  }
  const groups = new Set<string>()
  for (let i = 0; i < index.size; i++) {
    const id = index.id(i)
    if (!wants(id)) continue
    add(index.places(i))
    if (places.length > mostPicked * records) return undefined
    const group = groupOf(id)
    if (!groups.has(group)) add(index.groupPlaces(i))
    groups.add(group)
  }
  return places.sort((a, b) => a.partition - b.partition || a.offset - b.offset)
}
