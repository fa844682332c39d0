/**
 * `troupe replay roc G`: prints what each selection would keep of a group; exits with 1 when today's code selects
 * otherwise than the log says.
 */
import type { Command } from 'commander'
import {
  explainSelection,
  type SelectionReport,
  type VariantResult,
  variants,
} from '../../replay/whatIf/explainSelection'
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

function lines(report: SelectionReport, explain: boolean): string[] {
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
