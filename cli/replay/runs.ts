/** `troupe replay runs`: lists the runs of a bus, the newest first; with --json, one JSON line for each run. */
import type { Command } from 'commander'
import { OpenRuns } from '../../dashboard/server/openRuns'
import { fitColumns, roomOf } from '../io/fitColumns'
import { escapeForTerminal } from '../io/terminal'
import { withBus, withDirectory } from '../options/busOptions'
import { jsonText } from './text/jsonText'

interface RunsOptions {
  readonly bus: string
  readonly dir?: string
  readonly json?: boolean
  readonly run?: string
}

/** Indexes of the columns, the most important first: the run, its state, its step and its pass@1. */
const order = [0, 1, 3, 4, 2, 5, 6]
const titles = ['run', 'state', 'recipe', 'step', 'pass@1', 'alarms', 'started']
const isNumber = [false, false, false, true, true, true, false]

export function registerRuns(replay: Command): void {
  const command = replay
    .command('runs')
    .description('list the runs of a bus, the newest first')
    .option('--json', 'print one JSON line for each run')
    .option('--run <id>', 'print only the line of this run')
  withDirectory(withBus(command)).action(runs)
}

async function runs({ bus, dir, json, run: only }: RunsOptions): Promise<void> {
  const open = new OpenRuns({
    ...{ bus, ...(dir === undefined ? {} : { directory: dir }) },
    ...(only === undefined ? {} : { only }),
  })
  try {
    const lines = await open.list()
    if (lines.length === 0)
      process.stderr.write(`no run${only === undefined ? '' : ` '${escapeForTerminal(only)}'`} on ${bus}\n`)
    if (json) return void process.stdout.write(lines.map(line => `${jsonText(line)}\n`).join(''))
    const rows = [
      titles,
      ...lines.map(({ run, state, recipe, step, plannedSteps, passAt1, alarms, startedAt, error }) =>
        error === undefined
          ? [
              ...[escapeForTerminal(run), state, escapeForTerminal(recipe), `${step}/${plannedSteps ?? '–'}`],
              ...[passAt1?.toFixed(3) ?? '–', String(alarms), new Date(startedAt).toISOString().slice(0, 16)],
            ]
          : [escapeForTerminal(run), 'unreadable', '', '', '', '', ''],
      ),
    ]
    const widths = titles.map((_, at) => Math.max(...rows.map(row => row[at]!.length)))
    const fits = fitColumns(widths, order, roomOf(process.stdout))
    for (const row of lines.length === 0 ? [] : rows) {
      const cells = row.map((cell, at) => (isNumber[at] ? cell.padStart(widths[at]!) : cell.padEnd(widths[at]!)))
      process.stdout.write(
        `${cells
          .filter((_, at) => fits[at])
          .join('  ')
          .trimEnd()}\n`,
      )
    }
  } finally {
    await open.close()
  }
}
