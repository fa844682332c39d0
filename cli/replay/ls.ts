/**
 * `troupe replay ls`: the trajectories of a run, filtered. With --json a line a trajectory.
 */
import { type Command, InvalidArgumentError } from 'commander'
import { type TrajectoryLine, trajectoryLines, withText } from '../../replay/trajectories/summaries'
import { TroupeError } from '../../runtime/errors'
import { escapeForTerminal, painter } from '../io/terminal'
import { wholeNumber } from '../options/readers'
import { jsonText } from './jsonText'
import { openRecorded, type ReadOptions, reportFaults, withRun } from './runOptions'

interface LsOptions extends ReadOptions {
  readonly json?: boolean
  readonly limit: number
  readonly status?: string
  readonly purpose?: string
  readonly reward?: string
  readonly step?: number
  readonly policy?: number
  readonly group?: string
  readonly task?: string
  readonly selection?: string
  readonly toolErrors?: boolean
  readonly multiTurn?: boolean
  readonly text?: string
  readonly since?: number
  readonly until?: number
}

const most = 2 ** 31
/** A write each would take longer than making them. */
const rowsAtOnce = 1000
export function registerLs(replay: Command): void {
  const command = replay
    .command('ls')
    .description('list the trajectories of a run')
    .option('--json', 'a JSON line for each')
    .option('--limit <n>', 'at most this many', wholeNumber(0, most), 50)
    .option('--status <status>', 'running, answered, truncated or failed')
    .option('--purpose <purpose>', 'train, eval, fork or chat')
    .option('--reward <test>', "e.g. '>0', '<0.5', '=1', 'none'")
    .option('--step <n>', 'of this step', wholeNumber(0, most))
    .option('--policy <version>', 'with a token sampled under this policy version', wholeNumber(0, most))
    .option('--group <id>', 'of this group')
    .option('--task <id>', 'of this task, whatever the step')
    .option('--selection <how>', 'kept, dropped or rejected')
    .option('--tool-errors', 'with a failed tool call')
    .option('--multi-turn', 'with more than one turn')
    .option('--text <text>', 'in the task, a turn, a call or its result; case does not matter')
    .option('--since <when>', 'asked for since: 90s, 15m, 2h, 3d ago, or a date', when)
    .option('--until <when>', 'asked for until', when)
  withRun(command).action(ls)
}

async function ls(options: LsOptions): Promise<void> {
  const matches = filterOf(options)
  const recorded = await openRecorded(options)
  try {
    let matching = (await trajectoryLines(recorded)).filter(matches)
    if (options.text !== undefined) {
      const found = await withText(recorded, new Set(matching.map(line => line.trajectory)), options.text)
      matching = matching.filter(line => found.has(line.trajectory))
    }
    const shown = matching.slice(0, options.limit)
    const idWidth = shown.reduce((width, { trajectory }) => Math.max(width, trajectory.length), 16)
    if (!options.json) process.stdout.write(`${'trajectory'.padEnd(idWidth)}  ${columns}\n`)
    const rows = shown.map(line => `${options.json ? jsonText(line) : row(line, idWidth)}\n`)
    for (let at = 0; at < rows.length; at += rowsAtOnce) process.stdout.write(rows.slice(at, at + rowsAtOnce).join(''))
    if (matching.length > shown.length) {
      process.stderr.write(`${matching.length - shown.length} more; --limit ${matching.length} shows all\n`)
    }
    if (matching.length === 0) process.stderr.write('no trajectory matches\n')
    reportFaults(recorded)
  } finally {
    await recorded.close()
  }
}

const columns = ' step  status     reward  turns  tokens  calls  errors  policy  group     advantage'
const paint = painter(process.stdout)

function row(line: TrajectoryLine, idWidth: number): string {
  const reward = line.reward === null ? '–' : String(line.reward)
  return [
    escapeForTerminal(line.trajectory).padEnd(idWidth),
    String(line.step).padStart(5),
    line.status.padEnd(9),
    paint(line.reward === null ? 'dim' : line.reward > 0 ? 'green' : 'red', reward.padStart(6)),
    String(line.turns).padStart(5),
    String(line.sampledTokens).padStart(6),
    String(line.toolCalls).padStart(5),
    String(line.toolErrors).padStart(6),
    String(line.policyVersion ?? '–').padStart(6),
    (line.selection ?? '').padEnd(8),
    line.advantage === null ? '' : line.advantage.toFixed(3),
  ].join('  ')
}

function filterOf(options: LsOptions): (line: TrajectoryLine) => boolean {
  const reward = options.reward === undefined ? undefined : rewardTest(options.reward)
  const oneOf = (name: string, value: string | undefined, known: readonly string[]) => {
    if (value !== undefined && !known.includes(value)) throw badFilter(`--${name} '${value}'`, known.join(', '))
  }
  oneOf('status', options.status, ['running', 'answered', 'truncated', 'failed'])
  oneOf('purpose', options.purpose, ['train', 'eval', 'fork', 'chat'])
  oneOf('selection', options.selection, ['kept', 'dropped', 'rejected'])
  return line =>
    (options.status === undefined || line.status === options.status) &&
    (options.purpose === undefined || line.purpose === options.purpose) &&
    (reward === undefined || reward(line.reward)) &&
    (options.step === undefined || line.step === options.step) &&
    (options.policy === undefined || line.policyVersions.includes(options.policy)) &&
    (options.since === undefined || line.at >= options.since) &&
    (options.until === undefined || line.at <= options.until) &&
    (options.group === undefined || line.trajectory.startsWith(`${options.group}/`)) &&
    (options.task === undefined || line.task === options.task) &&
    (options.selection === undefined || line.selection === options.selection) &&
    (options.toolErrors !== true || line.toolErrors > 0) &&
    (options.multiTurn !== true || line.turns > 1)
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

function badFilter(what: string, known: string): TroupeError {
  return new TroupeError('cli.bad_filter', {
    boundary: 'cli',
    retriable: false,
    message: `${what} is no filter`,
    hint: `write ${known}`,
  })
}

const unitMs: Readonly<Record<string, number>> = { s: 1e3, m: 60e3, h: 3600e3, d: 86_400e3 }

/** ms since 1970: so long ago, or a date. */
function when(text: string): number {
  const ago = /^(\d+(?:\.\d+)?)([smhd])$/.exec(text.trim())
  if (ago !== null) return Date.now() - Number(ago[1]) * unitMs[ago[2]!]!
  const date = Date.parse(text)
  if (!Number.isNaN(date)) return date
  throw new InvalidArgumentError("Write '90s', '15m', '2h', '3d' or a date such as 2026-01-31T12:00Z.")
}
