/**
 * `troupe replay ls`: the trajectories of a run, filtered. With --json a line a trajectory.
 */
import type { Command } from 'commander'
import { TroupeError } from '../../runtime/errors'
import { chooseRun, openRun, withBus } from '../runContext'
import { painter } from '../terminal'
import { readFacts, type TrajectoryLine, trajectoryIndex } from './trajectories'

interface LsOptions {
  readonly bus: string
  readonly run?: string
  readonly json?: boolean
  readonly limit: number
  readonly status?: string
  readonly purpose?: string
  readonly reward?: string
  readonly step?: number
  readonly policy?: number
  readonly group?: string
  readonly toolErrors?: boolean
  readonly multiTurn?: boolean
}

export function registerLs(replay: Command): void {
  const command = replay
    .command('ls')
    .description('list the trajectories of a run')
    .option('--run <id>', 'the run (default: the newest)')
    .option('--json', 'a JSON line for each')
    .option('--limit <n>', 'at most this many', Number, 50)
    .option('--status <status>', 'running, answered, truncated or failed')
    .option('--purpose <purpose>', 'train, eval, fork or chat')
    .option('--reward <test>', "e.g. '>0', '<0.5', '=1', 'none'")
    .option('--step <n>', 'of this step', Number)
    .option('--policy <version>', 'sampled under this policy version', Number)
    .option('--group <id>', 'of this group')
    .option('--tool-errors', 'with a failed tool call')
    .option('--multi-turn', 'with more than one turn')
  withBus(command).action(ls)
}

async function ls(options: LsOptions): Promise<void> {
  const matches = filterOf(options)
  const context = await openRun(options.bus, chooseRun(options.bus, options.run), 'read')
  try {
    const index = trajectoryIndex()
    await readFacts(context.journal, fact => index.take(fact))
    let shown = 0
    let matched = 0
    if (!options.json) process.stdout.write(`${header}\n`)
    for (const line of index.lines()) {
      if (!matches(line)) continue
      matched++
      if (shown >= options.limit) continue
      shown++
      process.stdout.write(`${options.json ? JSON.stringify(line) : row(line)}\n`)
    }
    if (matched > shown) process.stderr.write(`${matched - shown} more; --limit ${matched} shows all\n`)
    if (matched === 0) process.stderr.write('no trajectory matches\n')
  } finally {
    await context.bus.close()
  }
}

const header = 'trajectory        step  status     reward  turns  tokens  calls  errors  policy  group     advantage'
const paint = painter(process.stdout)

function row(line: TrajectoryLine): string {
  const reward = line.reward === null ? '–' : String(line.reward)
  return [
    line.trajectory.padEnd(16),
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
  return line =>
    (options.status === undefined || line.status === options.status) &&
    (options.purpose === undefined || line.purpose === options.purpose) &&
    (reward === undefined || reward(line.reward)) &&
    (options.step === undefined || line.step === options.step) &&
    (options.policy === undefined || line.policyVersion === options.policy) &&
    (options.group === undefined || line.trajectory.startsWith(`${options.group}/`)) &&
    (options.toolErrors !== true || line.toolErrors > 0) &&
    (options.multiTurn !== true || line.turns > 1)
}

function rewardTest(text: string): (reward: number | null) => boolean {
  if (text === 'none') return reward => reward === null
  const match = /^(<=|>=|<|>|=)?\s*(-?\d+(?:\.\d+)?)$/.exec(text.trim())
  if (match === null) {
    throw new TroupeError('cli.bad_filter', {
      boundary: 'cli',
      retriable: false,
      message: `--reward '${text}' is no test`,
      hint: "write '>0', '<0.5', '=1' or 'none'",
    })
  }
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
