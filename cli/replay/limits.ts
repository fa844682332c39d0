/**
 * `troupe replay limits TARGET|--all --turns 5` (a trajectory, a group or a step): prints how trajectories would have
 * ended under other limits.
 */
import { type Command, InvalidArgumentError } from 'commander'
import type { Limits } from '../../replay/whatIf/limitOutcome'
import { type LimitedLine, type LimitsSummary, whatIfLimits } from '../../replay/whatIf/whatIfLimits'
import { escapeForTerminal, painter, percent } from '../io/terminal'
import { type ReadOptions, usageError, withLog, withRun } from './runOptions'
import { jsonText } from './text/jsonText'

interface LimitsOptions extends ReadOptions, Partial<Limits> {
  readonly all?: boolean
  readonly json?: boolean
}

const names = [
  'turns',
  'responseTokens',
  'contextTokens',
  'toolResponseChars',
  'callsPerTurn',
  'toolTimeoutMs',
] as const satisfies readonly (keyof Limits)[]
const shownLines = 40

export function registerLimits(replay: Command): void {
  const command = replay
    .command('limits [target]')
    .description(
      'show how trajectories would have ended under other limits: outcomes, rewards, selection and advantages',
    )
    .option('--all', 'use every trajectory of the run')
    .option('--turns <n>', 'upper bound on the turns of a trajectory', most)
    .option(
      '--response-tokens <n>',
      'upper bound on the tokens after the prompt, such as 4096, or 4K for the same',
      most,
    )
    .option('--context-tokens <n>', 'upper bound on the tokens of prompt and response together', most)
    .option('--tool-response-chars <n>', "upper bound on the characters of a tool's answer", most)
    .option('--calls-per-turn <n>', 'upper bound on the tool calls of a turn', most)
    .option('--tool-timeout-ms <n>', 'deadline of one tool call', most)
    .option('--json', 'print one JSON line for each trajectory, then a summary')
  withRun(command).action(limits)
}

async function limits(target: string | undefined, options: LimitsOptions): Promise<void> {
  if (target === undefined && options.all !== true) {
    throw usageError(
      'bad_limits',
      'no trajectory, group or step was named',
      'name one: troupe replay limits G --turns 5, or take all: --all',
    )
  }
  const change: Partial<Limits> = Object.fromEntries(
    names.flatMap(name => (options[name] === undefined ? [] : [[name, options[name]]])),
  )
  await withLog(options, async recorded => {
    const { lines, summary } = await whatIfLimits(recorded, target, change)
    if (options.json) for (const line of lines) process.stdout.write(`${jsonText(line)}\n`)
    process.stdout.write(options.json ? `${jsonText(summary)}\n` : `${report(lines, summary).join('\n')}\n`)
  })
}

const paint = painter(process.stdout)

function report(lines: readonly LimitedLine[], summary: LimitsSummary): string[] {
  const limits = Object.entries(summary.limits).map(([name, value]) => `${name} ${value}`)
  const out = [`under ${limits.join(', ')}`]
  const changed = lines.filter(l => l.kind !== 'same' || l.selection[0] !== l.selection[1])
  const both = <T>([was, now]: readonly [T, T | null], text: (value: T) => string): string =>
    now === null ? `${text(was)} → ?` : was === now ? text(was) : `${text(was)} → ${text(now)}`
  const number = (value: number | null) =>
    value === null ? '–' : Number.isInteger(value) ? String(value) : value.toFixed(3)
  const advantages = ({ selection, advantage: [was, now] }: LimitedLine): string => {
    if (selection[1] === null) return `${number(was)} → ?`
    return was === now ? number(was) : `${number(was)} → ${number(now)}`
  }
  for (const l of changed.slice(0, shownLines)) {
    const head = escapeForTerminal(l.trajectory).padEnd(16)
    if (l.kind === 'running') out.push(`${head}  still running`)
    else if (l.kind === 'generate') {
      out.push(
        paint('yellow', `${head}  needs a new generation from turn ${l.fromTurn}: ${escapeForTerminal(l.why ?? '')}`),
      )
    } else {
      const what = `${both(l.outcome, escapeForTerminal)}, turns ${both(l.turns, number)}, reward ${both(l.reward, number)}`
      const selection =
        l.selection[0] === null ? '' : `, ${both(l.selection, s => s ?? '–')}, advantage ${advantages(l)}`
      out.push(`${head}  ${what}${selection}`)
    }
  }
  if (changed.length > shownLines) out.push(`… ${changed.length - shownLines} more; --json lists all`)
  const { same, cut, generate, running, meanReward, truncatedShare, sampledTokens } = summary
  out.push(
    `${summary.trajectories} trajectories: ${same} end as recorded, ${cut} otherwise, ${generate} need a new generation${running > 0 ? `, ${running} still run` : ''}`,
    `of the ${same + cut} that are known: mean reward ${number(meanReward[0])} → ${number(meanReward[1])}, truncated ${percent(truncatedShare[0])} → ${percent(truncatedShare[1])}, sampled tokens ${sampledTokens[0]} → ${sampledTokens[1]}`,
    `${summary.groups} groups decided: ${summary.groupsAsRecorded} as recorded, ${summary.groupsOtherwise} otherwise, ${summary.groupsNotKnown} not known`,
  )
  return out
}

function most(text: string): number {
  const match = /^(\d{1,9})([kK]?)$/.exec(text.trim())
  const value = match === null ? Number.NaN : Number(match[1]) * (match[2] === '' ? 1 : 1024)
  if (value >= 1) return value
  throw new InvalidArgumentError('Write a whole number from 1 on, such as 5, 4096 or 4K.')
}
