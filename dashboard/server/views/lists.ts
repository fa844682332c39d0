/**
 * Lists of trajectories and of groups, one page of rows at a time.
 *
 * in   an opened run, a filter, the offset and number of rows        out  rows, and how many there are in all
 * Invariant: filters mean what those of `replay ls` mean, since the same function applies them.
 */
import { groupOf } from '../../../messages/ids'
import { listTrajectories, type TrajectoryFilter } from '../../../replay/trajectories/filter'
import type { TrajectorySummary } from '../../../replay/trajectories/summaries'
import type { GroupLine, Paged, TrajectoryLine } from '../../api'
import { type CommandPlace, commandOf } from '../commands'
import type { OpenedRun } from '../openedRun'
import { shownLine } from '../shownText'

export interface PageOf {
  readonly offset: number
  readonly limit: number
}

export type SortedBy = 'requested' | 'newest' | 'reward' | 'tokens' | 'errors'

/** Caches the filtered lists of the latest requests, since scrolling asks for many pages of one list. */
const kept = new WeakMap<OpenedRun, Map<string, Promise<readonly TrajectorySummary[]>>>()
const mostKept = 4

function listed(run: OpenedRun, filter: TrajectoryFilter, sort: SortedBy): Promise<readonly TrajectorySummary[]> {
  const key = JSON.stringify([run.index.version, sort, filter])
  const lists = kept.get(run) ?? new Map<string, Promise<readonly TrajectorySummary[]>>()
  kept.set(run, lists)
  let list = lists.get(key)
  if (list === undefined) {
    list = listTrajectories(run.recorded, filter).then(found => sorted(found, sort))
    lists.set(key, list)
    list.catch(() => lists.delete(key))
    for (const old of [...lists.keys()].slice(0, -mostKept)) lists.delete(old)
  }
  return list
}

function sorted(all: readonly TrajectorySummary[], by: SortedBy): readonly TrajectorySummary[] {
  if (by === 'newest') return [...all].reverse()
  if (by === 'reward') return [...all].sort((a, b) => (b.reward ?? -Infinity) - (a.reward ?? -Infinity))
  if (by === 'tokens') return [...all].sort((a, b) => b.sampledTokens - a.sampledTokens)
  return by === 'errors' ? [...all].sort((a, b) => b.toolErrors - a.toolErrors) : all
}

export function trajectoryLine(run: OpenedRun, one: TrajectorySummary): TrajectoryLine {
  return {
    ...{ trajectory: one.trajectory, step: one.step, purpose: one.purpose, status: one.status, reward: one.reward },
    ...{ turns: one.turns, sampledTokens: one.sampledTokens, toolCalls: one.toolCalls, toolErrors: one.toolErrors },
    ...{ versions: one.policyVersions, selection: one.selection, advantage: one.advantage, at: one.at },
    positive: run.isPositive(one.reward),
    task: shownLine(one.task),
    reason: shownLine(one.reason),
  }
}

export async function trajectoryList(
  run: OpenedRun,
  place: CommandPlace,
  filter: TrajectoryFilter,
  sort: SortedBy,
  { offset, limit }: PageOf,
): Promise<Paged<TrajectoryLine>> {
  const all = await listed(run, filter, sort)
  return {
    total: all.length,
    offset,
    rows: all.slice(offset, offset + limit).map(one => trajectoryLine(run, one)),
    command: commandOf(place, 'replay', 'ls', ...filterWords(filter)),
  }
}

function filterWords(filter: TrajectoryFilter): readonly string[] {
  const names = ['status', 'purpose', 'reward', 'step', 'policy', 'group', 'task', 'selection', 'text'] as const
  return [
    ...names.flatMap(name => (filter[name] === undefined ? [] : [`--${name}`, String(filter[name])])),
    ...(filter.toolErrors === true ? ['--tool-errors'] : []),
    ...(filter.multiTurn === true ? ['--multi-turn'] : []),
  ]
}

/** Lists groups with a matching member. The group whose first matching member was requested last comes first. */
export async function groupList(
  run: OpenedRun,
  place: CommandPlace,
  filter: TrajectoryFilter,
  { offset, limit }: PageOf,
): Promise<Paged<GroupLine>> {
  const found = await listed(run, filter, 'requested')
  const all = await listed(run, {}, 'requested')
  const matching = byGroup(found)
  const whole = found === all ? matching : byGroup(all)
  return {
    total: matching.size,
    offset,
    rows: [...matching]
      .reverse()
      .slice(offset, offset + limit)
      .map(([group, { length }]) => groupLine(run, group, whole.get(group)!, length)),
    command: commandOf(place, 'replay', 'ls', ...filterWords(filter)),
  }
}

function byGroup(all: readonly TrajectorySummary[]): ReadonlyMap<string, readonly TrajectorySummary[]> {
  const groups = new Map<string, TrajectorySummary[]>()
  for (const one of all) {
    const group = groupOf(one.trajectory)
    const members = groups.get(group)
    if (members === undefined) groups.set(group, [one])
    else members.push(one)
  }
  return groups
}

function groupLine(run: OpenedRun, group: string, members: readonly TrajectorySummary[], matching: number): GroupLine {
  const { step, purpose, task } = members[0]!
  const decided = members.filter(one => one.selection !== null)
  const isRejected = decided.some(one => one.selection === 'rejected')
  const sum = (of: (one: TrajectorySummary) => number) => members.reduce((total, one) => total + of(one), 0)
  return {
    ...{ group, step, purpose, task: shownLine(task), size: members.length, matching },
    rewarded: sum(one => Number(one.reward !== null)),
    positives: sum(one => Number(run.isPositive(one.reward))),
    kept: sum(one => Number(one.selection === 'kept')),
    decision: decided.length === 0 ? 'open' : isRejected ? 'rejected' : 'selected',
    toolErrors: sum(one => one.toolErrors),
    sampledTokens: sum(one => one.sampledTokens),
  }
}
