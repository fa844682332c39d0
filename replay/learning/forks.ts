/**
 * Finds what a fork was made from: a rollout that `replay fork` forked, or a session that the gateway forked.
 *
 * in   a recorded run, or one of its trajectories        out  forks, each with its parent
 * The fork of a rollout is in a run of its own, whose `trajectory.forked` names the parent. The fork of a session is in
 * the parent's run: its `session.opened` names the parent, and copied calls follow.
 */
import { factsOf, type RecordedRun } from '../log/recordedRun'
import { callFactsIn, isCaptured, readTrajectories, type Trajectory } from '../trajectories/trajectory'
import { indexOf } from '../trajectoryIndex/trajectoryIndex'

export interface Fork {
  readonly child: string
  readonly parent: string
  /** Run of the parent; null if it is the fork's own. */
  readonly parentRun: string | null
  /** First turn that the parent does not share; of a captured session, the first such call. */
  readonly turn: number
}

/** Returns all forks that the run has. */
export const forksIn = async (recorded: RecordedRun): Promise<readonly Fork[]> => [
  ...(await rolloutForks(recorded)),
  ...(await sessionForks(recorded)),
]

/** Returns the fork that the trajectory is; undefined if it is none. */
export async function forkOf(recorded: RecordedRun, one: Trajectory): Promise<Fork | undefined> {
  if (one.request.purpose !== 'fork') return undefined
  return isCaptured(one) ? sessionFork(one) : (await rolloutForks(recorded)).find(({ child }) => child === one.id)
}

const rolloutForks = async (recorded: RecordedRun): Promise<readonly Fork[]> =>
  (await factsOf(recorded, 'runs', ['trajectory.forked'])).map(({ child, parent, parentRun = null, turn }) => ({
    ...{ child, parent, parentRun, turn },
  }))

async function sessionForks(recorded: RecordedRun): Promise<readonly Fork[]> {
  const index = await indexOf(recorded)
  const children = new Set<string>()
  for (let i = 0; i < index.size; i++) {
    const { id, purpose, opening } = index.row(i)
    if (purpose === 'fork' && opening >= 0) children.add(id)
  }
  if (children.size === 0) return []
  return (await readTrajectories(recorded, id => children.has(id))).flatMap(one => sessionFork(one) ?? [])
}

function sessionFork(one: Trajectory): Fork | undefined {
  const facts = callFactsIn(one)
  const parent = facts.find(fact => fact.type === 'session.opened')?.parent
  const copied = facts.filter(fact => fact.type === 'call.started' && fact.copyOf !== undefined)
  return parent === undefined ? undefined : { child: one.id, parent, parentRun: null, turn: copied.length }
}
