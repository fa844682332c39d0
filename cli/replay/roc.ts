/**
 * `troupe replay roc GROUP`: prints which rollouts of a group the selections paper, release, none and dynamic would
 * keep. Exit code 1 when today's code, with the run's own `selection.variant`, selects otherwise than the log says.
 */
import type { Command } from 'commander'
import {
  explainSelection,
  type SelectionReport,
  type VariantResult,
  variants,
} from '../../replay/whatIf/explainSelection'
import { roomOf } from '../io/fitColumns'
import { tableLines, wrapped } from '../io/table'
import { escapeForTerminal, painter } from '../io/terminal'
import { type ReadOptions, withLog, withRun } from './runOptions'
import { jsonText } from './text/jsonText'

interface RocOptions extends ReadOptions {
  readonly explain?: boolean
  readonly json?: boolean
}

export function registerRoc(replay: Command): void {
  const command = replay
    .command('roc <group>')
    .description('show what each selection would keep of a group: paper, release, none, dynamic')
    .option('--explain', 'print penalties, weights and the seed of the draws too')
    .option('--json', 'print one JSON object')
  withRun(command).action(roc)
}

const roc = (asked: string, options: RocOptions): Promise<void> =>
  withLog(options, async recorded => {
    const report = await explainSelection(recorded, asked)
    if (options.json) process.stdout.write(`${jsonText(report)}\n`)
    else process.stdout.write(`${lines(report, options.explain === true).join('\n')}\n`)
    process.exitCode = report.agrees === false ? 1 : 0
  })

const paint = painter(process.stdout)

/** Titles of the columns, the most important first: a narrow terminal shows the first ones that fit. */
const importance = ['member', 'reward', 'recorded', 'paper', 'errors', 'release', 'none', 'dynamic', 'calls'].concat([
  'p_err',
  'p_format',
  'weight',
  'turns',
  'tags',
])

function lines(report: SelectionReport, explain: boolean, room = roomOf(process.stdout)): string[] {
  const { members, recorded } = report
  const columns: readonly (readonly [string, VariantResult])[] = [
    ...variants.map(name => [name, report.variants[name]] as const),
    ...(recorded === null ? [] : [['recorded', recorded] as const]),
  ]
  const positives = members.filter(m => m.reward > 0).length
  const head = `${escapeForTerminal(report.group)}: ${members.length} of ${report.size} rewarded, ${positives} positive, ${members.length - positives} negative${report.closed === null ? ', not closed yet' : ''}`
  const lines = [...wrapped(head, room, 2)]
  if (explain) lines.push(`draws: ${report.generator}, seed ${report.seed}`)
  const counts = ['member', 'reward', 'calls', 'errors', 'tags', 'turns']
  const why = explain ? ['p_err', 'p_format', 'weight'] : []
  const rows = members.map(m => [
    ...[m.member, m.reward, m.toolCalls, m.toolErrors, m.answerTags, m.turns].map(String),
    ...(explain ? [m.errorPenalty.toFixed(3), m.formatPenalty.toFixed(3), m.weight?.toPrecision(4) ?? '–'] : []),
    ...columns.map(([, v]) => v.advantages[m.member]?.toFixed(3) ?? paint('dim', '·')),
  ])
  const titles = [...counts, ...why, ...columns.map(([name]) => name)]
  const table = titles.map(title => ({ title, atEnd: true, width: counts.includes(title) ? 0 : 8 }))
  const order = importance.map(title => titles.indexOf(title)).filter(at => at >= 0)
  lines.push(...tableLines(table, order, rows, room))
  for (const [name, v] of columns) {
    const reason = v.reason === null ? '' : ` (${v.reason})`
    const kept = v.outcome === 'rejected' ? '' : `: ${v.keptPositives} positive, ${v.keptNegatives} negative`
    lines.push(...wrapped(`${name.padEnd(8)} ${v.outcome}${reason}${kept}`, room, 9))
  }
  if (report.agrees === false) lines.push(paint('red', "today's code selects otherwise than recorded"))
  else if (report.agrees) lines.push(paint('green', "today's code selects as recorded"))
  return lines
}
