/**
 * Explains a group's selection: which members each selection would keep, and with which advantages.
 *
 * in   a recorded group
 * out  the recorded decision, and what `paper`, `release`, `none` and `dynamic` select from the same rollouts
 *
 * `dynamic` is only dynamic sampling (DAPO, arXiv 2503.14476 §3.2): it keeps all members of a group, and rejects a
 * group with fewer than two rewards or with equal ones.
 */
import type { RecipeConfig } from '../../config'
import { advantages, type GroupMember, type Selection, type SelectionVariant, selectGroup } from '../../kernels'
import type { GroupRejected, GroupSelected } from '../../messages/facts'
import { type GroupId, groupOf } from '../../messages/ids'
import { configOf } from '../log/recordedConfig'
import type { RecordedRun } from '../log/recordedRun'
import { rewardedMembers, selectionOptions } from '../trajectories/groups'
import { resolveId, trajectoriesOf } from '../trajectories/resolveId'
import { readTrajectories, type Trajectory } from '../trajectories/trajectory'

export const variants = ['paper', 'release', 'none', 'dynamic'] as const
export type Variant = (typeof variants)[number]

export interface VariantResult {
  readonly outcome: 'selected' | 'whole' | 'rejected'
  readonly reason: string | null
  /** Advantage of each kept member, by its number in the group. */
  readonly advantages: Readonly<Record<number, number>>
  readonly keptPositives: number
  readonly keptNegatives: number
}

export interface SelectionReport {
  readonly group: GroupId
  /** Number of rollouts that the group was requested with. */
  readonly size: number
  readonly seed: number
  readonly generator: string
  /** Reason why the group was closed; null while it is open. */
  readonly closed: string | null
  readonly members: readonly (GroupMember & {
    readonly errorPenalty: number
    readonly formatPenalty: number
    /**
     * Weight of the member when the selection `paper` draws positives (members with a reward above
     * selection.positiveAbove) at random. null for a negative, and if `paper` would keep the group whole or reject it.
     */
    readonly weight: number | null
  })[]
  readonly variants: Readonly<Record<Variant, VariantResult>>
  /** The decision in the log; null while the group is undecided. */
  readonly recorded: (VariantResult & { readonly selection: string }) | null
  /**
   * true if today's code, with the recipe's `selection.variant`, decides this group as recorded: the same outcome and
   * the same advantages. null while the group is undecided.
   */
  readonly agrees: boolean | null
}

/**
 * Explains the group that `asked` names: by its id, by a part of it, or by the id of one of its trajectories. The
 * random choices use the seed that follows from the run's seed and the group, so the same log gives the same report.
 * @throws TroupeError replay.no_match, replay.ambiguous; the errors of `configOf`, such as config.invalid when today's
 * schema refuses the run's recipe
 */
export async function explainSelection(recorded: RecordedRun, asked: string): Promise<SelectionReport> {
  const groups = new Set((await trajectoriesOf(recorded)).map(groupOf))
  const group = resolveId(asked.replace(/\/\d*$/, ''), groups, 'group')
  const members = await readTrajectories(recorded, id => groupOf(id) === group)
  return reportOf(group, members, await configOf(recorded))
}

function reportOf(group: GroupId, all: readonly Trajectory[], config: RecipeConfig): SelectionReport {
  const options = selectionOptions(config, group, all[0]?.request.limits.responseTokens ?? 0)
  const members = rewardedMembers(all)
  const select = (variant: SelectionVariant) => selectGroup(members, { ...options, variant })
  const paper = select('paper')
  const decision = all.find(m => m.decision !== null)?.decision ?? null
  const above = config.selection.positiveAbove
  const own = resultOf(select(config.selection.variant), above)
  const recorded = decision === null ? null : recordedResult(decision, above)
  return {
    group,
    size: all[0]?.request.groupSize ?? 0,
    seed: options.seed,
    generator: paper.explain.generator,
    closed: all.find(m => m.closed !== null)?.closed?.reason ?? null,
    members: paper.explain.members.map(({ member, errorPenalty, formatPenalty, weight }) => ({
      ...members.find(m => m.member === member)!,
      errorPenalty,
      formatPenalty,
      weight,
    })),
    variants: {
      paper: resultOf(paper, above),
      release: resultOf(select('release'), above),
      none: resultOf(select('none'), above),
      dynamic: dynamicSampling(members, above),
    },
    recorded,
    agrees: recorded === null ? null : same(recorded, own),
  }
}

function resultOf(selection: Selection, above: number): VariantResult {
  if (selection.kind === 'rejected') return rejected(selection.reason)
  const reason = selection.kind === 'whole' ? selection.reason : null
  return { outcome: selection.kind, reason, ...keptOf(selection.kept, above) }
}

function recordedResult(
  decision: GroupSelected | GroupRejected,
  above: number,
): NonNullable<SelectionReport['recorded']> {
  if (decision.type === 'group.rejected') return { selection: '', ...rejected(decision.reason) }
  const outcome = decision.whole ? 'whole' : 'selected'
  return { selection: decision.selection, outcome, reason: null, ...keptOf(decision.kept, above) }
}

function dynamicSampling(members: readonly GroupMember[], above: number): VariantResult {
  if (members.length < 2) return rejected('too-few-rewarded')
  if (members.every(m => m.reward === members[0]!.reward)) return rejected('equal-rewards')
  const values = advantages(members.map(m => m.reward))
  return {
    outcome: 'whole',
    reason: null,
    ...keptOf(
      members.map((m, i) => ({ ...m, advantage: values[i]! })),
      above,
    ),
  }
}

const rejected = (reason: string): VariantResult => ({
  outcome: 'rejected',
  reason,
  advantages: {},
  keptPositives: 0,
  keptNegatives: 0,
})

const keptOf = (
  kept: readonly { readonly member: number; readonly reward: number; readonly advantage: number }[],
  positiveAbove: number,
) => ({
  advantages: Object.fromEntries(kept.map(k => [k.member, k.advantage])),
  keptPositives: kept.filter(k => k.reward > positiveAbove).length,
  keptNegatives: kept.filter(k => !(k.reward > positiveAbove)).length,
})

function same(a: VariantResult, b: VariantResult): boolean {
  return a.outcome === b.outcome && JSON.stringify(a.advantages) === JSON.stringify(b.advantages)
}
