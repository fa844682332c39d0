/**
 * A group side by side: each rollout, whether the selection (such as RoC, resampling on correct) kept it, and why.
 *
 * in   an opened run, a group        out  JSON of api.ts
 * Invariant: `penalty` is as recorded. `errorPenalty`, `formatPenalty` and `weight` come from `explainSelection`, which
 * decides with today's code, and with the recipe and the seed of the run.
 */
import { groupOf, memberOf } from '../../../messages/ids'
import { listTrajectories } from '../../../replay/trajectories/filter'
import { isCaptured, readTrajectories, selectionOf, type Trajectory } from '../../../replay/trajectories/trajectory'
import { explainSelection, type SelectionReport } from '../../../replay/whatIf/explainSelection'
import { TroupeError } from '../../../runtime/errors'
import type { GroupMember, GroupReport } from '../../api'
import { offered } from '../actions/offered'
import { type CommandPlace, commandOf } from '../commands'
import type { OpenedRun } from '../openedRun'
import { shownLine, shownText } from '../shownText'
import { trajectoryLine } from './lists'

const mostPrompt = 8192

export async function groupReport(run: OpenedRun, place: CommandPlace, asked: string): Promise<GroupReport> {
  const report = await explained(run, asked)
  const group = report instanceof TroupeError ? asked : report.group
  const all = await readTrajectories(run.recorded, id => groupOf(id) === group)
  const lines = new Map((await listTrajectories(run.recorded, { group })).map(one => [one.trajectory, one]))
  const request = all[0]?.request
  const decision = all.find(one => one.decision !== null)?.decision ?? null
  const members = all.flatMap((one): GroupMember[] => {
    const line = lines.get(one.id)
    const measured = measuredIn(report).find(m => m.member === memberOf(one.id))
    if (line === undefined) return []
    return [
      {
        ...trajectoryLine(run, line),
        member: memberOf(one.id),
        penalty: selectionOf(one).penalty,
        errorPenalty: measured?.errorPenalty ?? null,
        formatPenalty: measured?.formatPenalty ?? null,
        weight: measured?.weight ?? null,
        answer: one.reward === null ? null : shownText(one.reward.answer, 512),
        why: whyOf(one, report, run.positiveAbove),
      },
    ]
  })
  const longest = Math.max(1, ...members.map(({ turns }) => turns))
  return {
    ...{ group, step: request?.step ?? 0, task: shownLine(request?.task.id ?? ''), members },
    prompt: (request?.task.messages ?? []).map(m => ({ role: m.role, content: shownText(m.content, mostPrompt) })),
    truth: request === undefined || request.task.truth === '' ? null : shownText(request.task.truth, 2048),
    decision:
      decision === null
        ? 'open'
        : decision.type === 'group.rejected'
          ? 'rejected'
          : decision.whole
            ? 'whole'
            : 'selected',
    reason: decision?.type === 'group.rejected' ? decision.reason : '',
    selection: decision?.type === 'group.selected' ? shownLine(decision.selection) : '',
    ...drawsOf(report),
    command: commandOf(place, 'replay', 'roc', group, '--explain'),
    commands: [
      offered(run, place, 'what each selection would keep, and why', { action: 'selection', group }),
      offered(run, place, 'score again with a changed reward', { action: 'rescore', target: group }),
      // Troupe cannot rerun a captured session under other limits: only its agent decides how it continues.
      ...(all.some(isCaptured)
        ? []
        : [
            offered(run, place, 'how its rollouts would end under other limits', {
              ...{ action: 'limits', target: group, limit: 'turns', most: Math.max(1, longest - 1) },
            }),
          ]),
    ],
  }
}

/** An error here: today's schema refuses the recipe of an old run, whose groups are then shown without their draws. */
type Explained = SelectionReport | TroupeError

async function explained({ recorded }: OpenedRun, asked: string): Promise<Explained> {
  try {
    return await explainSelection(recorded, asked)
  } catch (thrown) {
    if (thrown instanceof TroupeError && thrown.code === 'config.invalid') return thrown
    throw thrown
  }
}

const measuredIn = (report: Explained): SelectionReport['members'] =>
  report instanceof TroupeError ? [] : report.members

function drawsOf(report: Explained) {
  if (report instanceof TroupeError)
    return { generator: '', seed: 0, agrees: null, variants: {}, unexplained: shownLine(report.message, 400) }
  const { generator, seed, agrees } = report
  const variants = Object.fromEntries(
    Object.entries(report.variants).map(([name, { outcome, advantages }]) => [name, { outcome, advantages }]),
  )
  return { generator, seed, agrees, variants, unexplained: '' }
}

/** Says why the group's decision kept, dropped or left out a member. */
export function whyOf(one: Trajectory, report: Explained, positiveAbove: number): string {
  const { decision, finished, reward } = one
  if (finished === null && reward === null)
    return one.closed === null
      ? 'still running: the group waits for it, or for its deadline'
      : 'it had no end when its group was closed: it is neither a positive nor a negative'
  if (reward === null) {
    const cause =
      finished?.outcome === 'failed' ? `the rollout failed (${shownLine(finished.reason, 80)})` : 'it has no reward'
    return `${cause}: it is neither a positive nor a negative`
  }
  if (decision === null) return 'the group is not decided yet'
  if (decision.type === 'group.rejected') {
    return decision.reason === 'equal-rewards'
      ? 'rejected with its group: all rewards are equal, so every advantage would be 0'
      : 'rejected with its group: too few members have a reward'
  }
  const member = memberOf(one.id)
  const isPositive = reward.reward > positiveAbove
  const side = isPositive ? 'positive' : 'negative'
  const members = measuredIn(report)
  const ofSide = members.filter(m => m.reward > positiveAbove === isPositive)
  const keptOfSide = decision.kept.filter(k => k.reward > positiveAbove === isPositive).length
  const kept = decision.kept.some(k => k.member === member)
  if (decision.whole) return 'kept: the group is kept whole'
  if (members.length === 0) return kept ? 'kept' : 'dropped'
  const measured = members.find(m => m.member === member)
  const drawn = `${keptOfSide} of ${ofSide.length} ${side}s are kept`
  if (!isPositive) {
    const how =
      decision.selection === 'paper'
        ? `${evenly}, so that failures stay diverse`
        : decision.selection === 'release'
          ? 'the first ones'
          : otherRule(decision.selection)
    return `${kept ? 'kept' : 'dropped'}: ${drawn}, ${how}`
  }
  const penalty =
    measured === undefined
      ? ''
      : `; its penalty is p_err ${measured.errorPenalty.toFixed(2)} + p_format ${measured.formatPenalty.toFixed(2)}`
  const rule =
    decision.selection === 'paper'
      ? 'drawn at random; the lower the penalty, the likelier'
      : decision.selection === 'release'
        ? 'those with the lowest penalty'
        : otherRule(decision.selection)
  return `${kept ? 'kept' : 'dropped'}: ${drawn}, ${rule}${penalty}`
}

const evenly = 'drawn at random, each as likely as the others'

const otherRule = (selection: string): string =>
  selection === 'none' ? evenly : `by the selection ${shownLine(selection, 40)}`
