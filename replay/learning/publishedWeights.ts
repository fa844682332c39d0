/**
 * Finds the weights that a run published and that are still on this machine.
 *
 * in   a recorded run, a policy version
 * out  the version's directory; else the nearest version's, with a notice. An error if no version is on disk, or if the
 *      caller needs exactly this version and it is not on disk
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { PolicyVersion } from '../../messages/ids'
import { TroupeError } from '../../runtime/errors'
import { pathToday } from '../../runtime/runPaths'
import { factsOf, type RecordedRun } from '../log/recordedRun'
import type { Trajectory } from '../trajectories/trajectory'

export interface PublishedWeights {
  readonly directory: string
  readonly version: PolicyVersion
  readonly digest: string
}

const known = new WeakMap<RecordedRun, Promise<readonly PublishedWeights[]>>()
const said = new WeakMap<RecordedRun, Set<number>>()

function weightsOnDisk(recorded: RecordedRun): Promise<readonly PublishedWeights[]> {
  let kept = known.get(recorded)
  if (kept === undefined) {
    kept = factsOf(recorded, 'learner', ['weights.published']).then(published =>
      published.flatMap(({ version, url, digest }) => {
        const directory = pathToday(recorded.files.root, url)
        return existsSync(join(directory, 'config.json')) ? [{ directory, version, digest }] : []
      }),
    )
    known.set(recorded, kept)
  }
  return kept
}

/**
 * Returns the weights of the wanted version, or of the nearest one.
 * @throws TroupeError replay.no_weights when none is on disk, or, with `exact`, when this version is not
 */
export async function nearestWeights(recorded: RecordedRun, wanted: number, exact = false): Promise<PublishedWeights> {
  const kept = await weightsOnDisk(recorded)
  const own = kept.find(w => w.version === wanted)
  if (own !== undefined) return own
  if (exact || kept.length === 0) {
    const versions = kept.map(w => w.version).join(', ') || 'none'
    throw new TroupeError('replay.no_weights', {
      boundary: 'replay',
      retriable: false,
      message: `the weights of version ${wanted} are not on this machine; versions on disk: ${versions}`,
      hint: 'name a model directory instead: `replay fork --model DIR`, `replay entropy --with-model DIR`',
    })
  }
  const nearest = kept.reduce((a, b) => (Math.abs(b.version - wanted) < Math.abs(a.version - wanted) ? b : a))
  const told = said.get(recorded) ?? new Set()
  said.set(recorded, told)
  if (!told.has(wanted))
    recorded.notice(
      `the weights of version ${wanted} are not on this machine; using version ${nearest.version}, the nearest`,
    )
  told.add(wanted)
  return nearest
}

/** Returns the policy version that sampled the last token of a turn; 0 when the turn was not completed. */
export function sampledUnder(trajectory: Trajectory, turn: number): number {
  for (const { message } of trajectory.entries) {
    if (message.type === 'turn.completed' && message.turn === turn) return message.segments.at(-1)?.policyVersion ?? 0
  }
  return 0
}
