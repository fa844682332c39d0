/**
 * `troupe replay ls`: prints the trajectories of a run that match a filter; with --json, one JSON line each.
 */
import { type Command, InvalidArgumentError } from 'commander'
import { pausedAfter } from '../../actors/ownership/orders'
import type { ControlObeyed } from '../../messages/facts'
import { factsOf, type RecordedRun } from '../../replay/log/recordedRun'
import { listTrajectories, type TrajectoryFilter } from '../../replay/trajectories/filter'
import type { TrajectorySummary } from '../../replay/trajectories/summaries'
import { fitColumns, roomOf } from '../io/fitColumns'
import { escapeForTerminal, painter } from '../io/terminal'
import { placeOptions } from '../options/busOptions'
import { wholeNumber } from '../options/readers'
import { type ReadOptions, withLog, withRun } from './runOptions'
import { jsonText } from './text/jsonText'

interface LsOptions extends ReadOptions, TrajectoryFilter {
  readonly json?: boolean
  readonly limit: number
}

const most = 2 ** 31
/** Number of rows in one write: a write for each row would take longer than making the rows. */
const rowsAtOnce = 1000

export function registerLs(replay: Command): void {
  const command = replay
    .command('ls')
    .description('list the trajectories of a run')
    .option('--json', 'print one JSON line for each trajectory')
    .option('--limit <n>', 'print at most this many trajectories', wholeNumber(0, most), 50)
    .option('--status <status>', 'list only trajectories with this status: running, answered, truncated or failed')
    .option('--purpose <purpose>', 'list only trajectories for this purpose: train, eval, fork or chat')
    .option('--reward <test>', "list only trajectories whose reward passes this test: '>0', '<0.5', '=1', 'none'")
    .option('--step <n>', 'list only trajectories that were requested for this optimizer step', wholeNumber(0, most))
    .option(
      '--policy <version>',
      'list only trajectories with a token sampled under this policy version',
      wholeNumber(0, most),
    )
    .option('--group <id>', 'list only members of this group')
    .option('--task <id>', 'list only trajectories of this task, at any step')
    .option('--selection <how>', 'list only trajectories with this selection: kept, dropped or rejected')
    .option('--tool-errors', 'list only trajectories with a failed tool call')
    .option('--multi-turn', 'list only trajectories with more than one turn')
    .option(
      '--text <text>',
      'list only trajectories with this text in the task, a turn, a call or its result; case does not matter',
    )
    .option('--since <when>', 'list only trajectories requested since 90s, 15m, 2h or 3d ago, or since a date', when)
    .option('--until <when>', 'list only trajectories requested until 90s, 15m, 2h or 3d ago, or until a date', when)
  withRun(command).action(ls)
}

const ls = (options: LsOptions): Promise<void> =>
  withLog(options, async recorded => {
    const matching = await listTrajectories(recorded, options)
    const shown = matching.slice(0, options.limit)
    const idWidth = shown.reduce((width, { trajectory }) => Math.max(width, trajectory.length), 16)
    const [first, ...others] = widths
    const fits = fitColumns([Math.max(first, idWidth), ...others], order, roomOf(process.stdout))
    const line = (cells: readonly string[]) =>
      cells
        .filter((_, at) => fits[at])
        .join('  ')
        .trimEnd()
    if (!options.json) process.stdout.write(`${line(head(idWidth))}\n`)
    const rows = shown.map(one => `${options.json ? jsonText(one) : line(row(one, idWidth))}\n`)
    for (let at = 0; at < rows.length; at += rowsAtOnce) process.stdout.write(rows.slice(at, at + rowsAtOnce).join(''))
    if (matching.length > shown.length) {
      process.stderr.write(`${matching.length - shown.length} more; --limit ${matching.length} shows all\n`)
    }
    if (matching.length === 0) process.stderr.write('no trajectory matches\n')
    const pause = await pauseOf(recorded, placeOptions(options))
    if (pause !== undefined) process.stderr.write(`${pause}\n`)
  })

/** Returns a line that says since when `troupe control` has paused the run, and why; undefined if it is not paused. */
async function pauseOf(recorded: RecordedRun, place: string): Promise<string | undefined> {
  let since: ControlObeyed | undefined
  for (const fact of await factsOf(recorded, 'runs', ['control.obeyed'])) {
    since = pausedAfter(since !== undefined, fact.order) ? (since ?? fact) : undefined
  }
  if (since === undefined) return undefined
  const why = since.reason === '' ? '' : ` (${escapeForTerminal(since.reason)})`
  return `run ${recorded.run} is paused since ${new Date(since.at).toISOString()}${why}; to continue: npx troupe control ${recorded.run} resume${place}`
}

const titles = [
  'trajectory',
  ' step',
  'status',
  'reward',
  'turns',
  'tokens',
  'calls',
  'errors',
  'policy',
  'group',
  'advantage',
]
const widths = [16, 5, 9, 6, 5, 6, 5, 6, 6, 8, 9] as const
/** Indexes of the columns, the most important first: a narrow terminal shows the first ones that fit. */
const order = [0, 3, 2, 4, 7, 5, 1, 9, 6, 10, 8]
const head = (idWidth: number) => titles.map((title, at) => title.padEnd(at === 0 ? idWidth : widths[at]!))
const paint = painter(process.stdout)

function row(one: TrajectorySummary, idWidth: number): readonly string[] {
  const reward = one.reward === null ? '–' : String(one.reward)
  return [
    escapeForTerminal(one.trajectory).padEnd(idWidth),
    String(one.step).padStart(5),
    one.status.padEnd(9),
    paint(one.reward === null ? 'dim' : one.reward > 0 ? 'green' : 'red', reward.padStart(6)),
    String(one.turns).padStart(5),
    String(one.sampledTokens).padStart(6),
    String(one.toolCalls).padStart(5),
    String(one.toolErrors).padStart(6),
    String(one.policyVersion ?? '–').padStart(6),
    (one.selection ?? '').padEnd(8),
    one.advantage === null ? '' : one.advantage.toFixed(3),
  ]
}

const unitMs: Readonly<Record<string, number>> = { s: 1e3, m: 60e3, h: 3600e3, d: 86_400e3 }

/** Parses a time, given as an age (`15m`: 15 minutes ago) or as a date, to ms since 1970. */
function when(text: string): number {
  const ago = /^(\d+(?:\.\d+)?)([smhd])$/.exec(text.trim())
  if (ago !== null) return Date.now() - Number(ago[1]) * unitMs[ago[2]!]!
  const date = Date.parse(text)
  if (!Number.isNaN(date)) return date
  throw new InvalidArgumentError("Write '90s', '15m', '2h', '3d' or a date such as 2026-01-31T12:00Z.")
}
