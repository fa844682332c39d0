/**
 * Resolves the id that a person typed: an exact id; else the only id that begins with the text or whose last part is
 * the text; else the only one that ends with it; else the only one that contains it.
 * Invariant: the first of these rules that any id meets decides; if several ids meet it, the error lists up to 8 of
 * them.
 */
import { groupOf, type TrajectoryId } from '../../messages/ids'
import { TroupeError } from '../../runtime/errors'
import type { RecordedRun } from '../log/recordedRun'
import { indexOf } from '../trajectoryIndex/trajectoryIndex'

const listed = 8

/** Returns the id that `asked` names. @throws TroupeError replay.no_match, replay.ambiguous */
export function resolveId<T extends string>(asked: string, ids: Iterable<T>, kind = 'trajectory'): T {
  const all = [...new Set(ids)]
  const exact = all.find(id => id === asked)
  if (exact !== undefined) return exact
  const fits = [
    (id: T) => id.startsWith(asked) || id.endsWith(`/${asked}`) || id.endsWith(`.${asked}`),
    (id: T) => id.endsWith(asked),
    (id: T) => id.includes(asked),
  ]
  for (const fit of fits) {
    const near = all.filter(fit)
    if (near.length === 1) return near[0]!
    if (near.length > 1) throw ambiguous(asked, near, kind)
  }
  throw new TroupeError('replay.no_match', {
    boundary: 'replay',
    retriable: false,
    message: `no ${kind} matches '${asked}'; the run has ${all.length} to choose from`,
    hint: '`troupe replay ls` lists the ids',
  })
}

/**
 * Returns a predicate for the trajectories that `asked` names: one trajectory (`s0001.0000/3`), a whole group
 * (`s0001.0000`), or all groups of a step (`s0001`); a group also by the beginning or the end of its id, a trajectory
 * by any part. @throws TroupeError replay.no_match, replay.ambiguous
 */
export function resolveTarget(asked: string, trajectories: readonly TrajectoryId[]): (id: string) => boolean {
  const groups = new Set(trajectories.map(groupOf))
  if ((trajectories as readonly string[]).includes(asked)) return id => id === asked
  if (groups.has(asked as never)) return id => id === asked || id.startsWith(`${asked}/`)
  if (/^[a-z]\d+$/.test(asked) && [...groups].some(g => g.startsWith(`${asked}.`))) {
    return id => id.startsWith(`${asked}.`)
  }
  const isGroup = !asked.includes('/') && [...groups].some(g => g.endsWith(asked) || g.startsWith(asked))
  if (isGroup) {
    const group = resolveId(asked, groups, 'group')
    return id => id === group || id.startsWith(`${group}/`)
  }
  const one = resolveId(asked, trajectories)
  return id => id === one
}

/**
 * Ids of all trajectories of a run whose request is in the log, readable or not. Those of one partition come in the
 * order of their requests.
 */
export async function trajectoriesOf(recorded: RecordedRun): Promise<readonly TrajectoryId[]> {
  const index = await indexOf(recorded)
  const rows = Array.from({ length: index.size }, (_, i) => i)
  return rows.filter(i => index.state(i) !== 'unasked').map(i => index.id(i))
}

function ambiguous(asked: string, near: readonly string[], kind: string): TroupeError {
  const shown = near.slice(0, listed).join(', ')
  return new TroupeError('replay.ambiguous', {
    boundary: 'replay',
    retriable: false,
    message: `'${asked}' matches ${near.length} ids: ${shown}${near.length > listed ? ', …' : ''}`,
    hint: `write the whole id of the ${kind}`,
  })
}
