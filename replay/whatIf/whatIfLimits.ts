/**
 * Computes how a run would have gone under other limits: outcomes, rewards, selection and advantages beside the
 * recorded ones.
 *
 * in   recorded trajectories, limits in place of theirs
 * out  which trajectories end earlier and which would need a new generation; rewards of the changed responses, by the
 * run's own graders; selection and advantages of each group
 * Invariant: a group gets no selection here if a member is still running or would need a new generation, since that
 * member's end is unknown, or if the run itself did not decide the group.
 */
import type { RecipeConfig } from '../../config'
import { type SelectionOptions, selectGroup } from '../../kernels'
import { groupOf } from '../../messages/ids'
import { configOf } from '../log/recordedConfig'
import type { RecordedRun } from '../log/recordedRun'
import { replayError } from '../replayError'
import { modelDirectories, type TokenTexts, tokenTexts } from '../tokens/tokenTexts'
import { rewardedMembers, selectionOptions } from '../trajectories/groups'
import { resolveTarget, trajectoriesOf } from '../trajectories/resolveId'
import { groupsOf, readTrajectories, selectionOf, type Trajectory } from '../trajectories/trajectory'
import { type LimitOutcome, type Limits, limitOutcome } from './limitOutcome'
import { graderDeadlineMs, gradesAtOnce, openRecordedGrader, type RecordedGrader } from './recordedGrader'

/** Outcome of one trajectory under the other limits, beside the recorded one. */
export interface LimitedLine {
  readonly trajectory: string
  readonly group: string
  readonly kind: LimitOutcome['kind']
  /** Reason why the record has no answer, if `kind` is `generate`; else null. */
  readonly why: string | null
  /** First turn that would be generated anew, if `kind` is `generate`; else null. */
  readonly fromTurn: number | null
  readonly outcome: readonly [recorded: string, now: string | null]
  readonly turns: readonly [recorded: number, now: number | null]
  readonly sampledTokens: readonly [recorded: number, now: number | null]
  readonly reward: readonly [recorded: number | null, now: number | null]
  /**
   * Recorded selection of the trajectory, and the one under the other limits: kept, dropped or rejected. The recorded
   * one is null when the run did not decide the group; the other one is null when it is unknown.
   */
  readonly selection: readonly [recorded: string | null, now: string | null]
  readonly advantage: readonly [recorded: number | null, now: number | null]
}

export interface LimitsReport {
  readonly lines: readonly LimitedLine[]
  readonly summary: LimitsSummary
}

/**
 * Replays the trajectories of `target` under the limits in `change`. `target`: a trajectory, a group or a step; a group
 * or a trajectory also by a part of its id; undefined: all. Responses that would have been cut are graded again if
 * their text changes; an unchanged text keeps its recorded reward, if it has one. If the texts of the last turn's
 * single tokens are unknown, that turn counts with its whole text. No token is generated.
 * @throws TroupeError replay.no_limit when `change` is empty; replay.no_match, replay.ambiguous; the errors of
 * `openRecordedGrader`
 */
export async function whatIfLimits(
  recorded: RecordedRun,
  target: string | undefined,
  change: Partial<Limits>,
): Promise<LimitsReport> {
  if (Object.keys(change).length === 0) throw noLimit()
  const ids = await trajectoriesOf(recorded)
  const wants = target === undefined ? () => true : resolveTarget(target, ids)
  // Whole groups are read, because a selection needs every member.
  const groups = new Set(ids.filter(wants).map(groupOf))
  const all = await readTrajectories(recorded, id => groups.has(groupOf(id)))
  const config = await configOf(recorded)
  const texts = tokenTexts(await modelDirectories(recorded))
  const deadlineMs = graderDeadlineMs + config.reward.timeoutMs
  let opened: Promise<RecordedGrader> | undefined
  const judge: Judge = async ({ request: { task } }, response) => {
    // The promise is stored, not the grader, because many trajectories ask at once.
    opened ??= openRecordedGrader(config)
    const { grade } = await opened
    return (await grade({ response, truth: task.truth, task }, AbortSignal.timeout(deadlineMs))).reward
  }
  try {
    const lines = (await linesUnder(all, config, change, texts, judge)).filter(line => wants(line.trajectory))
    return { lines, summary: summaryOf(lines, change) }
  } finally {
    await (await opened?.catch(() => undefined))?.close()
  }
}

/** Returns the reward of a response; null when it has none. */
type Judge = (trajectory: Trajectory, response: string) => Promise<number | null>

async function linesUnder(
  all: readonly Trajectory[],
  config: RecipeConfig,
  change: Partial<Limits>,
  texts: TokenTexts,
  judge: Judge,
): Promise<readonly LimitedLine[]> {
  const results = new Map<string, { readonly now: LimitOutcome; readonly recast: Trajectory }>()
  for (let at = 0; at < all.length; at += gradesAtOnce) {
    await Promise.all(
      all.slice(at, at + gradesAtOnce).map(async trajectory => {
        const now = limitOutcome(trajectory, change, texts)
        results.set(trajectory.id, { now, recast: await recast(trajectory, now, judge) })
      }),
    )
  }
  const lines: LimitedLine[] = []
  for (const [group, members] of groupsOf(all)) {
    const responseTokens = change.responseTokens ?? members[0]!.request.limits.responseTokens
    const selected = reselect(members, selectionOptions(config, group, responseTokens), results)
    for (const trajectory of members) {
      const { now, recast: other } = results.get(trajectory.id)!
      const known = now.kind === 'same' || now.kind === 'cut'
      const { selection, advantage } = selectionOf(trajectory)
      const member = selected?.get(trajectory.request.member) ?? null
      lines.push({
        ...{ trajectory: trajectory.id, group, kind: now.kind },
        why: now.kind === 'generate' ? now.why : null,
        fromTurn: now.kind === 'generate' ? now.fromTurn : null,
        outcome: [outcomeOf(trajectory), known ? outcomeOf(other) : null],
        turns: [trajectory.finished?.turns ?? trajectory.texts.length, known ? (other.finished?.turns ?? null) : null],
        sampledTokens: [
          trajectory.finished?.sampledTokens ?? 0,
          known ? (other.finished?.sampledTokens ?? null) : null,
        ],
        reward: [trajectory.reward?.reward ?? null, known ? (other.reward?.reward ?? null) : null],
        selection: [selection, member?.selection ?? null],
        advantage: [advantage, member?.advantage ?? null],
      })
    }
  }
  return lines
}

const outcomeOf = ({ finished }: Trajectory): string =>
  finished === null ? 'running' : finished.outcome === 'truncated' ? `truncated (${finished.reason})` : finished.outcome

/** Returns the trajectory with its end under the new limits; a response that differs is graded again. */
async function recast(trajectory: Trajectory, now: LimitOutcome, judge: Judge): Promise<Trajectory> {
  if (now.kind !== 'cut') return trajectory
  const response = now.texts.join('\n')
  const same = trajectory.reward !== null && response === trajectory.texts.join('\n')
  const reward = same ? trajectory.reward.reward : await judge(trajectory, response)
  const assigned = {
    type: 'reward.assigned',
    at: 0,
    trajectory: trajectory.id,
    attempt: 0,
    answer: '',
    how: '',
  } as const
  const judged = reward === null ? null : { ...assigned, reward }
  return { ...trajectory, texts: now.texts, finished: now.finished, reward: judged }
}

type Selected = { readonly selection: 'kept' | 'dropped' | 'rejected'; readonly advantage: number | null }

/**
 * Applies the recipe's selection. Returns the result by member; undefined when the end of a member is unknown, or the
 * group was never decided.
 */
function reselect(
  members: readonly Trajectory[],
  options: SelectionOptions,
  results: ReadonlyMap<string, { readonly now: LimitOutcome; readonly recast: Trajectory }>,
): ReadonlyMap<number, Selected> | undefined {
  const now = members.map(m => results.get(m.id)!)
  const isKnown = now.every(r => r.now.kind === 'same' || r.now.kind === 'cut')
  if (!isKnown || members.every(m => m.decision === null)) return undefined
  const chosen = selectGroup(rewardedMembers(now.map(r => r.recast)), options)
  const kept = new Map(chosen.kind === 'rejected' ? [] : chosen.kept.map(k => [k.member, k.advantage]))
  return new Map(
    members.map(({ request: { member } }): [number, Selected] => {
      if (chosen.kind === 'rejected') return [member, { selection: 'rejected', advantage: null }]
      const advantage = kept.get(member)
      return [member, { selection: advantage === undefined ? 'dropped' : 'kept', advantage: advantage ?? null }]
    }),
  )
}

export type LimitsSummary = ReturnType<typeof summaryOf>

function summaryOf(lines: readonly LimitedLine[], change: Partial<Limits>) {
  const known = lines.filter(l => l.kind === 'same' || l.kind === 'cut')
  const rewarded = known.filter(l => l.reward[0] !== null && l.reward[1] !== null)
  const mean = (values: readonly number[]) =>
    values.length === 0 ? null : values.reduce((sum, v) => sum + v, 0) / values.length
  const share = (side: 0 | 1) => mean(known.map(l => (l.outcome[side]?.startsWith('truncated') ? 1 : 0)))
  const groups = [...new Set(lines.map(l => l.group))].map(g => lines.filter(l => l.group === g))
  const decided = groups.filter(of => of.some(l => l.selection[0] !== null))
  const open = decided.filter(of => of.every(l => l.selection[1] === null))
  const isSame = (l: LimitedLine) => l.selection[0] === l.selection[1] && l.advantage[0] === l.advantage[1]
  const count = (kind: LimitOutcome['kind']) => lines.filter(l => l.kind === kind).length
  return {
    type: 'summary',
    limits: change,
    trajectories: lines.length,
    same: count('same'),
    cut: count('cut'),
    generate: count('generate'),
    running: count('running'),
    /**
     * Mean reward over the trajectories that have a recorded reward and one under the new limits: recorded, then new.
     */
    meanReward: [mean(rewarded.map(l => l.reward[0]!)), mean(rewarded.map(l => l.reward[1]!))],
    truncatedShare: [share(0), share(1)],
    sampledTokens: [0, 1].map(side => known.reduce((sum, l) => sum + (l.sampledTokens[side] ?? 0), 0)),
    groups: decided.length,
    groupsNotKnown: open.length,
    groupsAsRecorded: decided.filter(of => !open.includes(of) && of.every(isSame)).length,
    groupsOtherwise: decided.filter(of => !open.includes(of) && !of.every(isSame)).length,
    kept: [0, 1].map(side => lines.filter(l => l.selection[side] === 'kept').length),
  } as const
}

const noLimit = () =>
  replayError('no_limit', 'no limit to change was given', 'give at least one, as in --turns 5 or --response-tokens 4K')
