/**
 * Reads trajectories as the coordinator sees them: each with the facts that its fold (the code that applies facts to
 * its state) accepted, and how it ended.
 *
 * in   a recorded run, which trajectories
 * out  for each its accepted facts, texts, end, reward and its group's decision
 * Invariant: the coordinator's `evolveRollout` decides, under the epoch of the partition (the offset of its owner's
 * claim), which facts are accepted. Stale attempts, repetitions and decisions of replaced owners are left out here as
 * they were in the run.
 */
import { curriculumAfter, isReplaced, noCurriculum } from '../../actors/ownership/fencing'
import { evolveRollout, newRollout, type Rollout } from '../../actors/rollouts/rollout'
import { isCallFact } from '../../kernels'
import type {
  CallFact,
  GroupClosed,
  GroupRejected,
  GroupSelected,
  RewardAssigned,
  RolloutFinished,
  RolloutRequested,
  TrajectoryFact,
} from '../../messages/facts'
import { type Epoch, epoch, type GroupId, groupOf, type TrajectoryId } from '../../messages/ids'
import type { Entry } from '../../runtime/journal/journal'
import type { RecordedRun } from '../log/recordedRun'
import { replayError } from '../replayError'
import { scanTrajectories } from '../trajectoryIndex/scanTrajectories'
import { resolveId, trajectoriesOf } from './resolveId'

export interface Trajectory {
  readonly id: TrajectoryId
  readonly partition: number
  readonly request: RolloutRequested
  /** Accepted facts in the log's order with their positions, `rollout.requested` first. */
  readonly entries: readonly Entry[]
  /** Outcome, counts and reason of the trajectory's end; null while it is running. */
  readonly finished: RolloutFinished | null
  readonly reward: RewardAssigned | null
  /** `group.closed` of its group; null while the group is open. */
  readonly closed: GroupClosed | null
  /** The grouper's decision about its group; null while the group is undecided. */
  readonly decision: GroupSelected | GroupRejected | null
  /** Texts that the model wrote, one for each finished turn; of a captured session, one for each answered call. */
  readonly texts: readonly string[]
}

/** Accepted facts of a trajectory, in the log's order. */
export const factsIn = ({ entries }: Trajectory): readonly TrajectoryFact[] =>
  entries.map(e => e.message as TrajectoryFact)

/** Facts of the calls of a captured session, in the log's order; none for a rollout of Troupe's own coordinator. */
export const callFactsIn = ({ entries }: Trajectory): readonly CallFact[] =>
  entries.map(e => e.message).filter(message => isCallFact(message))

/** True for a captured session: an agent outside decided its calls, and it has no turns of a coordinator. */
export const isCaptured = ({ entries }: Trajectory): boolean => entries.some(({ message }) => isCallFact(message))

/** Returns the response that the verifier grades: the texts of all turns, joined by line breaks. */
export const responseOf = ({ texts }: Trajectory): string => texts.join('\n')

/**
 * Returns what the group's selection decided about the trajectory. `advantage` is null unless the trajectory was kept;
 * all fields are null while the group is undecided.
 */
export function selectionOf({ decision, request }: Trajectory) {
  if (decision === null) return { selection: null, advantage: null, penalty: null } as const
  if (decision.type === 'group.rejected') return { selection: 'rejected', advantage: null, penalty: null } as const
  const kept = decision.kept.find(k => k.member === request.member)
  if (kept !== undefined) return { selection: 'kept', advantage: kept.advantage, penalty: kept.penalty } as const
  const dropped = decision.dropped.find(d => d.member === request.member)
  return { selection: 'dropped', advantage: null, penalty: dropped?.penalty ?? null } as const
}

/**
 * Reads the trajectory that `asked` names: an id, or a part of it that only one trajectory has.
 * @throws TroupeError replay.no_match, replay.ambiguous; replay.no_request when the record of its request cannot be
 * read
 */
export async function readTrajectory(recorded: RecordedRun, asked: string): Promise<Trajectory> {
  const id = resolveId(asked, await trajectoriesOf(recorded))
  const [trajectory] = await readTrajectories(recorded, one => one === id)
  if (trajectory !== undefined) return trajectory
  throw replayError(
    'no_request',
    `the record of ${id}'s rollout.requested cannot be read`,
    '`troupe replay verify` names the unreadable record',
  )
}

/**
 * Reads trajectories in the order of their requests, partition by partition. A trajectory without a readable request is
 * left out.
 */
export async function readTrajectories(
  recorded: RecordedRun,
  wants: (id: TrajectoryId) => boolean,
): Promise<readonly Trajectory[]> {
  const found = new Map<TrajectoryId, Folding>()
  const members = new Map<GroupId, Folding[]>()
  const epochs = new Map<number, Epoch>()
  const curricula = new Map<number, number>()
  await scanTrajectories(recorded, wants, entry => {
    const fact = entry.message as TrajectoryFact
    const at = epochs.get(entry.partition) ?? epoch(-1)
    const curriculum = curricula.get(entry.partition) ?? noCurriculum
    switch (fact.type) {
      case 'partition.claimed':
        epochs.set(entry.partition, epoch(entry.offset))
        return
      case 'scheduler.claimed':
        return
      case 'curriculum.claimed':
        curricula.set(entry.partition, curriculumAfter(curriculum, fact))
        return
      case 'rollout.requested': {
        if (isReplaced(curriculum, fact) || found.has(fact.trajectory) || !wants(fact.trajectory)) return
        const folding = { trajectory: requested(entry, fact), rollout: newRollout(fact) }
        found.set(fact.trajectory, folding)
        members.set(fact.group, [...(members.get(fact.group) ?? []), folding])
        return
      }
      case 'group.closed':
      case 'group.selected':
      case 'group.rejected':
        if (fact.epoch === at) for (const folding of members.get(fact.group) ?? []) decide(folding, entry, fact, at)
        return
      default: {
        const folding = found.get(fact.trajectory)
        if (folding !== undefined) take(folding, entry, fact, at)
      }
    }
  })
  return [...found.values()].map(f => f.trajectory)
}

type Open = { -readonly [K in keyof Trajectory]: Trajectory[K] } & { entries: Entry[]; texts: string[] }

interface Folding {
  readonly trajectory: Open
  rollout: Rollout
}

const requested = (entry: Entry, request: RolloutRequested): Open => ({
  id: request.trajectory,
  partition: entry.partition,
  request,
  entries: [entry],
  finished: null,
  reward: null,
  closed: null,
  decision: null,
  texts: [],
})

function take(folding: Folding, entry: Entry, fact: TrajectoryFact | CallFact, at: Epoch): void {
  if (isCallFact(fact)) {
    folding.rollout = evolveRollout(folding.rollout, fact, at)
    folding.trajectory.entries.push(entry)
    // A session that is opened again starts anew: its earlier calls do not count.
    if (fact.type === 'session.opened') folding.trajectory.texts.length = 0
    if (fact.type === 'call.finished' && fact.finish !== 'failed') folding.trajectory.texts.push(fact.text)
    return
  }
  const after = evolveRollout(folding.rollout, fact, at)
  if (after === folding.rollout) return
  folding.rollout = after
  // The turns by which engines answered an agent's calls repeat what is in the calls' facts.
  if (after.led !== undefined && fact.type.startsWith('turn.')) return
  const { trajectory } = folding
  trajectory.entries.push(entry)
  if (fact.type === 'turn.completed') trajectory.texts.push(fact.text)
  else if (fact.type === 'rollout.finished') trajectory.finished = fact
  else if (fact.type === 'reward.assigned') trajectory.reward = fact
}

function decide(folding: Folding, entry: Entry, fact: GroupClosed | GroupSelected | GroupRejected, at: Epoch): void {
  const { trajectory } = folding
  if (fact.type === 'group.closed') {
    if (trajectory.closed !== null) return
    trajectory.closed = fact
    folding.rollout = evolveRollout(folding.rollout, fact, at)
  } else {
    if (trajectory.decision !== null || trajectory.closed === null) return
    trajectory.decision = fact
  }
  trajectory.entries.push(entry)
}

/** Maps each group to its trajectories. */
export function groupsOf(all: readonly Trajectory[]): ReadonlyMap<GroupId, readonly Trajectory[]> {
  const groups = new Map<GroupId, Trajectory[]>()
  for (const trajectory of all) {
    const group = groupOf(trajectory.id)
    const known = groups.get(group)
    if (known === undefined) groups.set(group, [trajectory])
    else known.push(trajectory)
  }
  return groups
}
