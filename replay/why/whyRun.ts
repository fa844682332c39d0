/**
 * Answers `troupe why`: reads from a recorded run what the question needs, and explains it.
 *
 * in   a recorded run, the id that a person typed (a trajectory, group or turn `group/member#turn`; none: the run)
 * out  an explanation
 * Invariant: the log is only read. For a run, only trajectories that are open or of an undecided group are read; for
 * another subject, only its own. Commands are read from 5 s before the oldest open fact on; engines' statuses from the
 * last 4096 records of `telemetry`.
 */
import { groupOf, type TrajectoryId } from '../../messages/ids'
import { type TopicName, topicOnBus } from '../../messages/topics'
import { processStanding } from '../log/processStanding'
import type { RecordedRun } from '../log/recordedRun'
import { supervisionTrees } from '../log/supervisionTrees'
import { firstAfter } from '../log/watermark'
import { replayError } from '../replayError'
import { resolveId, resolveTarget, trajectoriesOf } from '../trajectories/resolveId'
import { scanTrajectories } from '../trajectoryIndex/scanTrajectories'
import { indexOf } from '../trajectoryIndex/trajectoryIndex'
import type { Evidence } from './evidence'
import { type Explanation, explain, type Subject } from './explain'
import { gatherEvidence } from './gatherEvidence'
import { type RunStanding, runStanding } from './outcome'

/** Topics of the commands and statuses that appear in a chain of waits, beside facts. */
const commandTopics = ['turns', 'assignments', 'tool-calls', 'inboxes', 'verifications'] as const
/** Number of the latest `telemetry` records in which the engines' statuses are looked for. */
const latestStatuses = 4096
/** Milliseconds by which a fact's own time may differ from the bus's time of a command about it. */
const clocksApartMs = 5000

/**
 * Explains what `asked` waits for; with `--at`, as of that record. `now`: time of the question, ms since 1970.
 * @throws TroupeError replay.no_match, replay.ambiguous
 */
export async function whyRun(recorded: RecordedRun, asked: string | undefined, now: number): Promise<Explanation> {
  const { evidence, subject } = await evidenceFor(recorded, asked)
  if (recorded.at === undefined) {
    const standings = new Map(evidence.trees.map(tree => [tree.tree, processStanding(tree)]))
    return explain(evidence, subject, { now, standings })
  }
  // With `--at`, the answer is as of that record: processes that had not ended by then count as running.
  const standings = new Map(
    evidence.trees.map(({ tree, isStopped }) => [tree, isStopped ? 'stopped' : 'running'] as const),
  )
  return explain(evidence, subject, { now: evidence.last?.at ?? now, standings })
}

/** Decides whether a run lives, is over, or has lost its process. */
export async function standingOfRun(recorded: RecordedRun): Promise<RunStanding> {
  const { take, evidence } = gatherEvidence()
  await recorded.scan('runs', take, ({ type = '' }) => type.startsWith('run.'))
  const { finished } = evidence()
  const trees = await supervisionTrees(recorded)
  return runStanding({ finished, trees }, new Map(trees.map(tree => [tree.tree, processStanding(tree)])))
}

async function evidenceFor(
  recorded: RecordedRun,
  asked: string | undefined,
): Promise<{ readonly evidence: Evidence; readonly subject: Subject }> {
  const { subject, wants } = await subjectOf(recorded, asked)
  const { take, evidence } = gatherEvidence()
  for (const topic of ['runs', 'learner'] as const) await recorded.scan(topic, take)
  await scanTrajectories(recorded, wants, take)
  const { rollouts, begun } = evidence()
  const open = [...rollouts.values()].filter(({ rollout }) => rollout.phase !== 'finished' || !rollout.rewarded)
  const since = Math.min(...open.map(({ rollout, last }) => Math.min(last.at, rollout.askedAt || last.at)))
  const ofOpen = new Set(open.map(({ rollout }) => rollout.request.trajectory as string))
  for (const topic of commandTopics) {
    await recorded.scan(
      topic,
      take,
      ({ trajectory }) => trajectory === undefined || ofOpen.has(trajectory),
      await offsetsFrom(recorded, topic, since - clocksApartMs),
    )
  }
  const ends = recorded.partitionsOf('telemetry') === 0 ? 0 : await recorded.endOf('telemetry', 0)
  const of = begun?.at ?? 0
  await recorded.scan('telemetry', take, ({ type }, { offset, timestamp }) =>
    type === 'actor.status' ? timestamp >= of : offset >= ends - latestStatuses,
  )
  return { evidence: evidence(), subject }
}

/** Returns for each partition the offset of its first record that was written after `since` (ms since 1970). */
async function offsetsFrom(recorded: RecordedRun, topic: TopicName, since: number): Promise<readonly number[]> {
  const name = topicOnBus(recorded.run, topic)
  const partitions = Array.from({ length: recorded.partitionsOf(topic) }, (_, p) => p)
  return Promise.all(partitions.map(p => firstAfter(recorded.bus, name, p, since)))
}

/** Finds what a person asked about, and which trajectories have to be read for it. */
async function subjectOf(
  recorded: RecordedRun,
  asked: string | undefined,
): Promise<{ readonly subject: Subject; readonly wants: (id: TrajectoryId) => boolean }> {
  const index = await indexOf(recorded)
  if (asked === undefined) {
    const open = new Set<TrajectoryId>()
    for (let i = 0; i < index.size; i++) {
      const { state, reward, purpose, selection, id } = index.row(i)
      const isOpen = state === 'running' || (reward === null && state !== 'failed' && state !== 'unasked')
      if (isOpen || (purpose === 'train' && selection === null && state !== 'unasked')) open.add(id)
    }
    return { subject: { kind: 'run' }, wants: id => open.has(id) }
  }
  const all = await trajectoriesOf(recorded)
  const [text, turn] = asked.split('#') as [string, string | undefined]
  if (turn !== undefined) {
    if (!/^\d{1,6}$/.test(turn)) {
      throw replayError('no_match', `'${asked}' is not a turn`, 'write group/member#turn, such as s0001.0000/3#2')
    }
    const trajectory = resolveId(text, all)
    return { subject: { kind: 'turn', trajectory, turn: Number(turn) }, wants: id => id === trajectory }
  }
  const groups = new Set(all.map(groupOf))
  const isOf = resolveTarget(text, all)
  const [group, ...more] = [...groups].filter(isOf)
  if (group !== undefined && more.length > 0) {
    const named = [group, ...more].slice(0, 8).join(', ')
    throw replayError(
      'ambiguous',
      `'${asked}' matches ${more.length + 1} groups: ${named}`,
      'write the whole id of a group',
    )
  }
  if (group !== undefined) return { subject: { kind: 'group', group }, wants: id => groupOf(id) === group }
  const trajectory = resolveId(text, all)
  return { subject: { kind: 'trajectory', trajectory }, wants: id => id === trajectory }
}
