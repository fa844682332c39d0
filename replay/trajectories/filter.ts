/**
 * Lists the trajectories of a run that match a filter.
 *
 * in   a recorded run, a filter
 * out  a summary of each matching trajectory; those of one partition come in the order of their requests
 * Invariant: summaries come from the run's index; once the index is up to date, the log itself is read only for a
 * filter with a text.
 */
import type { RecordedRun } from '../log/recordedRun'
import { replayError } from '../replayError'
import { type TrajectorySummary, trajectorySummaries, withText } from './summaries'

/** Conditions on a trajectory. A trajectory matches if it meets all conditions that are set. */
export interface TrajectoryFilter {
  readonly status?: TrajectorySummary['status']
  readonly purpose?: 'train' | 'eval' | 'fork' | 'chat'
  /**
   * Comparison with the reward, as text: one of `<`, `<=`, `>`, `>=`, `=` before a number, such as `>0`; a number alone
   * means `=`. `none` accepts trajectories without a reward.
   */
  readonly reward?: string
  /** Optimizer step that the rollout was requested for. */
  readonly step?: number
  /** Policy version that sampled at least one of the trajectory's tokens. */
  readonly policy?: number
  readonly group?: string
  readonly task?: string
  readonly selection?: 'kept' | 'dropped' | 'rejected'
  /** true: accepts trajectories with at least one failed tool call. */
  readonly toolErrors?: boolean
  /** true: accepts trajectories of more than one turn. */
  readonly multiTurn?: boolean
  /**
   * Text that occurs in the task, a turn, a tool call or its result; case does not matter. The results that an agent
   * sends to the gateway are not searched.
   */
  readonly text?: string
  /** Earliest accepted time of `rollout.requested`, ms since 1970. */
  readonly since?: number
  /** Latest accepted time of `rollout.requested`, ms since 1970. */
  readonly until?: number
}

/** Lists the matching trajectories. @throws TroupeError replay.bad_filter, before the log is read */
export async function listTrajectories(
  recorded: RecordedRun,
  filter: TrajectoryFilter = {},
): Promise<readonly TrajectorySummary[]> {
  const accepts = acceptedBy(filter)
  const found = (await trajectorySummaries(recorded)).filter(accepts)
  if (filter.text === undefined) return found
  const holding = await withText(recorded, new Set(found.map(one => one.trajectory)), filter.text)
  return found.filter(one => holding.has(one.trajectory))
}

const known = {
  status: ['running', 'answered', 'truncated', 'failed'],
  purpose: ['train', 'eval', 'fork', 'chat'],
  selection: ['kept', 'dropped', 'rejected'],
} as const

/** Compiles the filter, except its text, to a predicate. @throws TroupeError replay.bad_filter */
function acceptedBy(filter: TrajectoryFilter): (one: TrajectorySummary) => boolean {
  const reward = filter.reward === undefined ? undefined : rewardTest(filter.reward)
  for (const name of ['status', 'purpose', 'selection'] as const) {
    const value: string | undefined = filter[name]
    if (value !== undefined && !(known[name] as readonly string[]).includes(value)) {
      throw badFilter(`--${name} '${value}'`, `one of ${known[name].join(', ')}`)
    }
  }
  return one =>
    (filter.status === undefined || one.status === filter.status) &&
    (filter.purpose === undefined || one.purpose === filter.purpose) &&
    (reward === undefined || reward(one.reward)) &&
    (filter.step === undefined || one.step === filter.step) &&
    (filter.policy === undefined || one.policyVersions.includes(filter.policy)) &&
    (filter.since === undefined || one.at >= filter.since) &&
    (filter.until === undefined || one.at <= filter.until) &&
    (filter.group === undefined || one.trajectory.startsWith(`${filter.group}/`)) &&
    (filter.task === undefined || one.task === filter.task) &&
    (filter.selection === undefined || one.selection === filter.selection) &&
    (filter.toolErrors !== true || one.toolErrors > 0) &&
    (filter.multiTurn !== true || one.turns > 1)
}

function rewardTest(text: string): (reward: number | null) => boolean {
  if (text === 'none') return reward => reward === null
  const match = /^(<=|>=|<|>|=)?\s*(-?\d+(?:\.\d+)?)$/.exec(text.trim())
  if (match === null) throw badFilter(`--reward '${text}'`, "'>0', '<0.5', '=1' or 'none'")
  const bound = Number(match[2])
  const holds = {
    '<': (r: number) => r < bound,
    '<=': (r: number) => r <= bound,
    '>': (r: number) => r > bound,
    '>=': (r: number) => r >= bound,
    '=': (r: number) => r === bound,
  }[match[1] ?? '=']!
  return reward => reward !== null && holds(reward)
}

const badFilter = (what: string, accepted: string) =>
  replayError('bad_filter', `${what} is not a valid filter`, `write ${accepted}`)
