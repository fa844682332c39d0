/**
 * Reads all records of one trajectory, and those about its group as a whole, in the log's order.
 *
 * in   a recorded run, a trajectory
 * out  entries with their positions; for each, whether the coordinator's fold (the code that applies facts to its
 *      state) accepts it
 * Invariant: records that a replaced owner wrote are listed too, with `counts: false`; so are superseded records of the
 * types that the fold keeps one by one (`kept`).
 */
import { fence } from '../../actors/ownership/fencing'
import { groupOf, type TrajectoryId } from '../../messages/ids'
import type { Entry } from '../../runtime/journal/journal'
import { placeOf } from '../log/place'
import type { RecordedRun } from '../log/recordedRun'
import { replayError } from '../replayError'
import { scanTrajectories } from '../trajectoryIndex/scanTrajectories'
import { indexOf } from '../trajectoryIndex/trajectoryIndex'
import { resolveId, trajectoriesOf } from './resolveId'
import { readTrajectories } from './trajectory'

export interface ShownEntry extends Entry {
  /**
   * true: the coordinator's fold accepts the record, so it is part of the trajectory's state; for types that are not in
   * `kept`: no later owner or curriculum had replaced the record's writer.
   */
  readonly counts: boolean
}

export interface ShownTrajectory {
  readonly trajectory: TrajectoryId
  readonly entries: readonly ShownEntry[]
}

/**
 * Reads the trajectory that `asked` names: its id, or a part of it that only one trajectory has.
 * @throws TroupeError replay.no_match, replay.ambiguous
 */
export async function showTrajectory(recorded: RecordedRun, asked: string): Promise<ShownTrajectory> {
  const index = await indexOf(recorded)
  const row = index.find(asked)
  const isExact = row !== undefined && index.state(row) !== 'unasked'
  const trajectory = isExact ? (asked as TrajectoryId) : resolveId(asked, await trajectoriesOf(recorded))
  return { trajectory, entries: await entriesOf(recorded, trajectory) }
}

/**
 * Returns the trajectory that the record at position `topic:partition:offset` belongs to.
 * @throws TroupeError replay.no_trajectory when the record belongs to none, is not there or cannot be read;
 * replay.bad_place when `at` is not a position
 */
export async function trajectoryAt(recorded: RecordedRun, at: string): Promise<TrajectoryId> {
  const { topic, partition, offset } = placeOf(at)
  let found: TrajectoryId | undefined
  await recorded.pick(topic, [{ partition, offset }], ({ message }) => {
    if ('trajectory' in message) found = message.trajectory
  })
  if (found !== undefined) return found
  throw noTrajectory(`no readable record of a trajectory is at ${at}`)
}

export const noTrajectory = (message: string) =>
  replayError('no_trajectory', message, '`troupe replay ls` lists the trajectories, `troupe replay show T` prints one')

/** Types of facts that the fold keeps one by one: for these, acceptance is decided for each record. */
const kept: ReadonlySet<string> = new Set([
  ...['turn.completed', 'tool.completed', 'context.appended', 'rollout.finished', 'reward.assigned'],
  ...['group.closed', 'group.selected', 'group.rejected'],
])

async function entriesOf(recorded: RecordedRun, id: TrajectoryId): Promise<readonly ShownEntry[]> {
  const entries: ShownEntry[] = []
  const group = groupOf(id)
  const isCurrent = fence()
  const [trajectory] = await readTrajectories(recorded, one => one === id)
  const accepted = trajectory && new Set(trajectory.entries.map(({ offset }) => offset))
  await scanTrajectories(
    recorded,
    one => one === id,
    entry => {
      const { message } = entry
      const current = isCurrent(entry)
      const about = 'trajectory' in message ? message.trajectory : 'group' in message ? message.group : undefined
      if (about !== id && about !== group) return
      const counts = current && (accepted === undefined || !kept.has(message.type) || accepted.has(entry.offset))
      entries.push({ ...entry, counts })
    },
  )
  return entries
}
