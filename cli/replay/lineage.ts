/**
 * `troupe replay lineage ID`: prints lineage, from a step down to tool calls and from a trajectory up to steps.
 */
import type { Command } from 'commander'
import { groupOf, type TrajectoryId } from '../../messages/ids'
import { type Lineage, type TracedLineage, traceLineage } from '../../replay/learning/lineage'
import { counted } from '../io/counted'
import { escapeForTerminal, painter } from '../io/terminal'
import { type ReadOptions, usageError, withLog, withRun } from './runOptions'
import { jsonText } from './text/jsonText'

interface LineageOptions extends ReadOptions {
  readonly text?: string
  readonly json?: boolean
}

export function registerLineage(replay: Command): void {
  const command = replay
    .command('lineage [id]')
    .description(
      'trace lineage: from a step down to its tool calls, from a trajectory up to the steps that trained on it',
    )
    .option(
      '--text <text>',
      'trace only trajectories with a tool call whose arguments or result contain this text, such as os.system',
    )
    .option('--json', 'print one JSON line for each trajectory')
  withRun(command).action(lineage)
}

async function lineage(asked: string | undefined, options: LineageOptions): Promise<void> {
  const { text, json } = options
  if (asked === undefined && text === undefined) {
    throw usageError(
      'no_target',
      'no step, group or trajectory was named',
      'name one: troupe replay lineage 3 (a step), lineage T, or --text os.system',
    )
  }
  await withLog(options, async recorded => {
    const query = { ...(asked === undefined ? {} : { asked }), ...(text === undefined ? {} : { text }) }
    const traced = await traceLineage(recorded, query)
    const { lineages } = traced
    if (json) for (const one of lineages) process.stdout.write(`${jsonText(one)}\n`)
    else process.stdout.write(`${[...stepLines(traced), ...lineages.flatMap(lines), total(lineages)].join('\n')}\n`)
  })
}

const paint = painter(process.stdout)
const short = (text: string) => {
  const line = escapeForTerminal(text.replace(/\s+/g, ' ').trim())
  return line.length > 90 ? `${line.slice(0, 89)}…` : line
}

function stepLines({ step, completed, published }: TracedLineage): string[] {
  if (step === null) return []
  const loss = completed?.metrics.loss
  return [
    `step ${step}${completed === null ? ', not completed' : `: version ${completed.version}, loss ${loss === undefined ? '–' : loss.toPrecision(5)}`}${published === null ? '' : `, weights ${published.digest.slice(0, 12)}`}`,
  ]
}

function lines(d: Lineage): string[] {
  const learned =
    d.trainedIn === null
      ? `${d.triedIn === null ? 'no step learned from it' : `step ${d.triedIn.step}, which ${d.triedIn.outcome === 'rejected' ? 'was rejected' : 'is not over'}, was to learn from it`}${d.selection === null ? '' : ` (${d.selection})`}`
      : `step ${d.trainedIn} learned from it, advantage ${d.advantage?.toFixed(3) ?? '–'}${d.publishedAs === null ? '' : ` → version ${d.publishedAs}`}`
  const out = [
    `├ ${paint('bold', escapeForTerminal(d.trajectory))}  ${d.purpose}, policy ${d.policyVersions.join(', ') || '–'}, reward ${d.reward ?? '–'}: ${learned}`,
  ]
  if (d.forkOf !== null) {
    const of = `${d.forkOf.parent}${d.forkOf.run === null ? '' : ` of run ${d.forkOf.run}`}`
    out.push(`│   forked from ${escapeForTerminal(of)} at ${d.isCaptured ? 'call' : 'turn'} ${d.forkOf.turn}`)
  }
  if (d.forks.length > 0) out.push(`│   forks: ${d.forks.map(escapeForTerminal).join(', ')}`)
  for (const call of d.calls) {
    const code = typeof call.arguments.code === 'string' ? call.arguments.code : JSON.stringify(call.arguments)
    out.push(
      `│   turn ${call.turn}, call ${call.call}: ${short(code)} → ${paint(call.status === 'ok' ? 'green' : 'red', call.status)}: ${short(call.stdout || call.stderr || call.text)}`,
    )
  }
  return out
}

function total(found: readonly Lineage[]): string {
  const groups = new Set(found.map(d => groupOf(d.trajectory as TrajectoryId)))
  const learned = found.filter(d => d.trainedIn !== null)
  const up = learned.filter(d => (d.advantage ?? 0) > 0).length
  const down = learned.filter(d => (d.advantage ?? 0) < 0).length
  const calls = found.reduce((n, d) => n + d.calls.length, 0)
  return `${counted(found.length, 'trajectory', 'trajectories')} of ${counted(groups.size, 'group')}, ${counted(calls, 'call')}; ${learned.length} learned from: ${up} encouraged, ${down} discouraged`
}
