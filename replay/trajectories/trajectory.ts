/**
 * Trajectories as they count: of every one its facts, less what the fold passed over.
 *
 * in   a recorded run and which trajectories        out  for each the facts that changed its state, and how it ended
 * Invariant: what counts is decided by the coordinator's fold (`evolveRollout`) under the epoch of its partition, so that
 * stale attempts, repetitions and decisions of former owners are left out here as they were in the run.
 */
import { curriculumAfter, isReplaced, noCurriculum } from '../../actors/ownership/fencing'
import { evolveRollout, newRollout, type Rollout } from '../../actors/rollouts/rollout'
import type {
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
import { scanTrajectories } from '../trajectoryIndex/scanTrajectories'

export interface Trajectory {
  readonly id: TrajectoryId
  readonly partition: number
  readonly request: RolloutRequested
  /** In the log's order, `rollout.requested` first. */
  readonly entries: readonly Entry[]
  readonly finished: RolloutFinished | null
  readonly reward: RewardAssigned | null
  readonly closed: GroupClosed | null
  readonly decision: GroupSelected | GroupRejected | null
  /** What the model wrote, a text a turn. */
  readonly texts: readonly string[]
}

interface Folding {
  readonly trajectory: Trajectory & { entries: Entry[]; texts: string[] }
  rollout: Rollout
}

export const factsIn = (trajectory: Trajectory): readonly TrajectoryFact[] =>
  trajectory.entries.map(e => e.message as TrajectoryFact)

/** What the verifier was asked to judge. */
export const responseOf = (trajectory: Trajectory): string => trajectory.texts.join('\n')

/** Whether it is trained on, and with which advantage. */
export function selectionOf({ decision, request }: Trajectory) {
  if (decision === null) return { selection: null, advantage: null, penalty: null } as const
  if (decision.type === 'group.rejected') return { selection: 'rejected', advantage: null, penalty: null } as const
  const kept = decision.kept.find(k => k.member === request.member)
  if (kept !== undefined) return { selection: 'kept', advantage: kept.advantage, penalty: kept.penalty } as const
  const dropped = decision.dropped.find(d => d.member === request.member)
  return { selection: 'dropped', advantage: null, penalty: dropped?.penalty ?? null } as const
}

/** In the order in which they were asked for, partition by partition. */
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
        const folding: Folding = { trajectory: fresh(entry, fact), rollout: newRollout(fact) }
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

const fresh = (entry: Entry, request: RolloutRequested): Folding['trajectory'] => ({
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

function take(folding: Folding, entry: Entry, fact: TrajectoryFact, at: Epoch): void {
  const after = evolveRollout(folding.rollout, fact, at)
  if (after === folding.rollout) return
  folding.rollout = after
  const trajectory = folding.trajectory as Open
  trajectory.entries.push(entry)
  if (fact.type === 'turn.completed') trajectory.texts.push(fact.text)
  else if (fact.type === 'rollout.finished') trajectory.finished = fact
  else if (fact.type === 'reward.assigned') trajectory.reward = fact
}

function decide(folding: Folding, entry: Entry, fact: GroupClosed | GroupSelected | GroupRejected, at: Epoch): void {
  const trajectory = folding.trajectory as Open
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

/** @throws nothing: the group of every trajectory that was asked for */
export const groupsOf = (all: readonly Trajectory[]): ReadonlyMap<GroupId, readonly Trajectory[]> => {
  const groups = new Map<GroupId, Trajectory[]>()
  for (const trajectory of all) {
    const group = groupOf(trajectory.id)
    const known = groups.get(group)
    if (known === undefined) groups.set(group, [trajectory])
    else known.push(trajectory)
  }
  return groups
}
