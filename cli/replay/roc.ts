/**
 * `troupe replay roc G`: which members of a group would be trained on under each selection, down to their advantages.
 *
 * in   a recorded group        out  paper, release, none and dynamic over the same rollouts, and what was decided
 * dynamic: dynamic sampling alone (DAPO, arXiv 2503.14476 §3.2): a group of unequal rewards is kept whole.
 */
import type { Command } from 'commander'
import type { RecipeConfig } from '../../config'
import { advantages, type GroupMember, type Selection, type SelectionVariant, selectGroup } from '../../kernels'
import type { GroupRejected, GroupSelected } from '../../messages/facts'
import type { GroupId } from '../../messages/ids'
import { groupOf } from '../../messages/ids'
import { configOf } from '../../replay/log/recordedConfig'
import { resolveId, trajectoriesOf } from '../../replay/trajectories/resolveId'
import { readTrajectories, type Trajectory } from '../../replay/trajectories/trajectory'
import { rewardedMembers, selectionOptions } from '../../replay/whatIf/groups'
import { escapeForTerminal, painter } from '../io/terminal'
import { jsonText } from './jsonText'
import { openRecorded, type ReadOptions, reportFaults, withRun } from './runOptions'

interface RocOptions extends ReadOptions {
  readonly explain?: boolean
  readonly json?: boolean
}

const variants = ['paper', 'release', 'none', 'dynamic'] as const
type Variant = (typeof variants)[number]

interface VariantResult {
  readonly outcome: 'selected' | 'whole' | 'rejected'
  readonly reason: string | null
  /** By member; members that are not kept are left out. */
  readonly advantages: Readonly<Record<number, number>>
  readonly keptPositives: number
  readonly keptNegatives: number
}

export interface RocReport {
  readonly group: GroupId
  readonly size: number
  readonly seed: number
  readonly generator: string
  readonly closed: string | null
  readonly members: readonly (GroupMember & {
    readonly errorPenalty: number
    readonly formatPenalty: number
    /** The probability weight in the paper's draw, of positives. */
    readonly weight: number | null
  })[]
  readonly variants: Readonly<Record<Variant, VariantResult>>
  /** What the log says; null while nothing is decided. */
  readonly recorded: (VariantResult & { readonly selection: string }) | null
  /** Whether today's code, under the run's own selection, decides as recorded. */
  readonly agrees: boolean | null
}

export function registerRoc(replay: Command): void {
  const command = replay
    .command('roc <group>')
    .description('what each selection would keep of a group: paper, release, none, dynamic')
    .option('--explain', 'penalties, weights and seeds too')
    .option('--json', 'one JSON object')
  withRun(command).action(async (asked: string, options: RocOptions) => {
    const recorded = await openRecorded(options)
    try {
      const groups = new Set((await trajectoriesOf(recorded)).map(groupOf))
      // Of a trajectory, its group is meant.
      const group = resolveId(asked.replace(/\/\d*$/, ''), groups, 'group')
      const members = await readTrajectories(recorded, id => id.startsWith(`${group}/`))
      const report = rocOf(group, members, await configOf(recorded))
      if (options.json) process.stdout.write(`${jsonText(report)}\n`)
      else process.stdout.write(`${lines(report, options.explain === true).join('\n')}\n`)
      reportFaults(recorded)
      process.exitCode = report.agrees === false ? 1 : 0
    } finally {
      await recorded.close()
    }
  })
}

function rocOf(group: GroupId, all: readonly Trajectory[], config: RecipeConfig): RocReport {
  const options = selectionOptions(config, group, all[0]?.request.limits.responseTokens ?? 0)
  const members = rewardedMembers(all)
  const select = (variant: SelectionVariant) => selectGroup(members, { ...options, variant })
  const paper = select('paper')
  const decision = all.find(m => m.decision !== null)?.decision ?? null
  const own = resultOf(select(config.selection.variant))
  const recorded = decision === null ? null : recordedResult(decision)
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
      paper: resultOf(paper),
      release: resultOf(select('release')),
      none: resultOf(select('none')),
      dynamic: dynamicSampling(members),
    },
    recorded,
    agrees: recorded === null ? null : same(recorded, own),
  }
}

function resultOf(selection: Selection): VariantResult {
  if (selection.kind === 'rejected') return rejected(selection.reason)
  const reason = selection.kind === 'whole' ? selection.reason : null
  return { outcome: selection.kind, reason, ...keptOf(selection.kept) }
}

function recordedResult(decision: GroupSelected | GroupRejected): NonNullable<RocReport['recorded']> {
  if (decision.type === 'group.rejected') return { selection: '', ...rejected(decision.reason) }
  const outcome = decision.whole ? 'whole' : 'selected'
  return { selection: decision.selection, outcome, reason: null, ...keptOf(decision.kept) }
}

function dynamicSampling(members: readonly GroupMember[]): VariantResult {
  if (members.length < 2) return rejected('too-few-rewarded')
  if (members.every(m => m.reward === members[0]!.reward)) return rejected('equal-rewards')
  const values = advantages(members.map(m => m.reward))
  return { outcome: 'whole', reason: null, ...keptOf(members.map((m, i) => ({ ...m, advantage: values[i]! }))) }
}

const rejected = (reason: string): VariantResult => ({
  outcome: 'rejected',
  reason,
  advantages: {},
  keptPositives: 0,
  keptNegatives: 0,
})

const keptOf = (kept: readonly { readonly member: number; readonly reward: number; readonly advantage: number }[]) => ({
  advantages: Object.fromEntries(kept.map(k => [k.member, k.advantage])),
  keptPositives: kept.filter(k => k.reward > 0).length,
  keptNegatives: kept.filter(k => !(k.reward > 0)).length,
})

function same(a: VariantResult, b: VariantResult): boolean {
  return a.outcome === b.outcome && JSON.stringify(a.advantages) === JSON.stringify(b.advantages)
}

const paint = painter(process.stdout)

function lines(report: RocReport, explain: boolean): string[] {
  const { members, recorded } = report
  const columns: readonly (readonly [string, VariantResult])[] = [
    ...variants.map(name => [name, report.variants[name]] as const),
    ...(recorded === null ? [] : [['recorded', recorded] as const]),
  ]
  const positives = members.filter(m => m.reward > 0).length
  const head = `${escapeForTerminal(report.group)}: ${members.length} of ${report.size} rewarded, ${positives} positive, ${members.length - positives} negative${report.closed === null ? ', not closed yet' : ''}`
  const explained = explain ? '  p_err  p_format   weight' : ''
  const lines = [head]
  if (explain) lines.push(`draws: ${report.generator}, seed ${report.seed}`)
  lines.push(
    `member  reward  calls  errors  tags  turns${explained}${columns.map(([name]) => name.padStart(10)).join('')}`,
  )
  for (const m of members) {
    const why = explain
      ? `${m.errorPenalty.toFixed(3).padStart(7)}${m.formatPenalty.toFixed(3).padStart(10)}${(m.weight === null ? '–' : m.weight.toPrecision(4)).padStart(9)}`
      : ''
    const cells = columns.map(([, v]) => {
      const advantage = v.advantages[m.member]
      return advantage === undefined ? paint('dim', '·'.padStart(10)) : advantage.toFixed(3).padStart(10)
    })
    lines.push(
      `${String(m.member).padStart(6)}  ${String(m.reward).padStart(6)}  ${String(m.toolCalls).padStart(5)}  ${String(m.toolErrors).padStart(6)}  ${String(m.answerTags).padStart(4)}  ${String(m.turns).padStart(5)}${why}${cells.join('')}`,
    )
  }
  for (const [name, v] of columns) {
    const reason = v.reason === null ? '' : ` (${v.reason})`
    const counts = v.outcome === 'rejected' ? '' : `: ${v.keptPositives} positive, ${v.keptNegatives} negative`
    lines.push(`${name.padEnd(8)} ${v.outcome}${reason}${counts}`)
  }
  if (report.agrees === false) lines.push(paint('red', "today's code selects otherwise than recorded"))
  else if (report.agrees) lines.push(paint('green', "today's code selects as recorded"))
  return lines
}
