/**
 * Summarises the trajectories of a run's log: what `replay ls` lists and `replay show` prints. A projection: it can be
 * recomputed from the facts at any time.
 */
import { fence } from '../../actors/ownership/fencing'
import type { TrajectoryFact } from '../../messages/facts'
import type { TrajectoryId } from '../../messages/ids'
import type { Journal } from '../../runtime/journal/journal'
import type { RecordedRun } from '../log/recordedRun'
import type { Row } from '../trajectoryIndex/rows'
import { scanTrajectories } from '../trajectoryIndex/scanTrajectories'
import { indexOf } from '../trajectoryIndex/trajectoryIndex'

export interface TrajectorySummary {
  readonly trajectory: TrajectoryId
  readonly purpose: string
  readonly step: number
  readonly task: string
  /** Outcome of the rollout; running until it has one. */
  readonly status: 'running' | 'answered' | 'truncated' | 'failed'
  readonly reason: string
  readonly reward: number | null
  readonly turns: number
  readonly sampledTokens: number
  readonly toolCalls: number
  readonly toolErrors: number
  /** Newest policy version that sampled one of the trajectory's tokens; null when none was sampled. */
  readonly policyVersion: number | null
  /** All policy versions that sampled the trajectory's tokens, ascending. */
  readonly policyVersions: readonly number[]
  readonly selection: 'kept' | 'dropped' | 'rejected' | null
  readonly advantage: number | null
  /** Time of `rollout.requested`, ms since 1970. */
  readonly at: number
}

/**
 * Reads all partitions and calls `take` with every fact, in each partition's order, except those that an owner or
 * curriculum wrote after another had replaced it.
 */
export async function readFacts(journal: Journal, take: (fact: TrajectoryFact) => void): Promise<void> {
  const partitions = await journal.partitionsOf('trajectories')
  const counts = fence()
  for (let partition = 0; partition < partitions; partition++) {
    const { oldest, next } = await journal.offsets('trajectories', partition)
    for await (const entries of journal.readTo('trajectories', partition, oldest, next)) {
      for (const entry of entries) if (counts(entry)) take(entry.message as TrajectoryFact)
    }
  }
}

/** Converts a row of the index to a summary; undefined when the log has no readable request of the trajectory. */
export function summaryOfRow(row: Omit<Row, 'places' | 'group'>): TrajectorySummary | undefined {
  if (row.state === 'unasked' || row.state === 'unread') return undefined
  return {
    trajectory: row.id,
    purpose: row.purpose,
    step: row.step,
    task: row.task,
    status: row.state,
    reason: row.reason,
    reward: row.reward,
    turns: row.turns,
    sampledTokens: row.sampledTokens,
    toolCalls: row.toolCalls,
    toolErrors: row.toolErrors,
    policyVersion: row.versions.at(-1) ?? null,
    policyVersions: row.versions,
    selection: row.selection,
    advantage: row.advantage,
    at: row.at,
  }
}

/**
 * Summaries of all trajectories with a readable request. Those of one partition come in the order of their requests.
 */
export async function trajectorySummaries(recorded: RecordedRun): Promise<readonly TrajectorySummary[]> {
  const index = await indexOf(recorded)
  return Array.from({ length: index.size }, (_, i) => summaryOfRow(index.row(i))).filter(line => line !== undefined)
}

/**
 * Returns the ids among `ids` of trajectories whose task, turns, tool calls or results contain `text`; case does not
 * matter.
 */
export async function withText(
  recorded: RecordedRun,
  ids: ReadonlySet<string>,
  text: string,
): Promise<ReadonlySet<string>> {
  const sought = text.toLowerCase()
  const found = new Set<string>()
  await scanTrajectories(
    recorded,
    id => ids.has(id),
    ({ message }) => {
      if (!('trajectory' in message) || found.has(message.trajectory)) return
      if (textsOf(message as TrajectoryFact).some(one => one.toLowerCase().includes(sought))) {
        found.add(message.trajectory)
      }
    },
  )
  return found
}

function textsOf(fact: TrajectoryFact): readonly string[] {
  if (fact.type === 'rollout.requested') return fact.task.messages.map(m => m.content)
  if (fact.type === 'turn.completed') return [fact.text]
  return fact.type === 'tool.completed' ? [fact.text, fact.stdout, fact.stderr] : []
}
