/**
 * `troupe replay run TARGET|--all` (a trajectory, a group or a step): compares the decisions of today's code with the
 * recorded ones, and prints the first that differs; exits with 1 when one differs or a record cannot be read.
 */
import type { Command } from 'commander'
import type { RecordedRun } from '../../replay/log/recordedRun'
import { replayRun, replayTarget } from '../../replay/rerun/replayRun'
import type { Rerun } from '../../replay/rerun/rerunPartition'
import { codeDigest } from '../../runtime/digests'
import { escapeForTerminal, painter } from '../io/terminal'
import { type ReadOptions, usageError, withLog, withRun } from './runOptions'
import type { Stepper } from './step'
import { divergenceLines } from './text/divergenceLines'
import { jsonText } from './text/jsonText'

interface RunOptions extends ReadOptions {
  readonly all?: boolean
  readonly step?: boolean
  readonly break?: string
  readonly json?: boolean
}

export function registerRun(replay: Command): void {
  const command = replay
    .command('run [target]')
    .description(
      "run today's code over a trajectory, a group or all of a run; exit 1 when a decision differs from the log",
    )
    .option('--all', 'replay every trajectory of the run')
    .option('--step', 'stop at every fact and wait for a command')
    .option('--break <expression>', 'stop at each fact for which this expression holds, such as \'status == "error"\'')
    .option('--json', 'print one JSON object; with stops, a JSON line for each stop before it')
  withRun(command).action(run)
}

async function run(target: string | undefined, options: RunOptions): Promise<void> {
  if (target === undefined && options.all !== true) {
    throw usageError(
      'no_target',
      'no trajectory, group or step was named',
      'name one: troupe replay run T, or take all: --all',
    )
  }
  const stops = options.step === true || options.break !== undefined ? stepperOf(options) : undefined
  try {
    await withLog(options, async recorded => {
      const replayed =
        target === undefined
          ? await replayRun(recorded, stops === undefined ? {} : { observer: stops, whole: true })
          : await replayTarget(recorded, target, stops)
      const sameCode = (await recorded.started()).codeDigest === codeDigest()
      if (options.json) process.stdout.write(`${jsonText({ run: recorded.run, sameCode, ...replayed })}\n`)
      else process.stdout.write(`${report(recorded, replayed, sameCode, target).join('\n')}\n`)
      process.exitCode = replayed.divergences.length > 0 || recorded.faults.length > 0 ? 1 : 0
    })
  } finally {
    stops?.end()
  }
}

/** Creates the stepper. Its prompt and expressions are loaded only when --step or --break is given. */
const stepperOf = (options: RunOptions): Stepper =>
  (require('./step') as typeof import('./step')).stepper({
    step: options.step === true,
    ...(options.break === undefined ? {} : { break: options.break }),
    json: options.json === true,
    input: process.stdin,
  })

const paint = painter(process.stdout)

function report(recorded: RecordedRun, replayed: Rerun, sameCode: boolean, target?: string): string[] {
  const { same, byClock, askedAgain, repeated, fenced, given, inFlight, divergences } = replayed
  const asides = [
    [byClock, 'by a deadline'],
    [askedAgain, 'asked again after a restart'],
    [repeated, 'recorded twice, counted once'],
    [fenced, 'of former owners, passed over'],
    [given, 'copied by a fork or an import, not compared'],
    [inFlight.length, 'not in the log yet at its end'],
  ] as const
  const notes = asides.filter(([n]) => n > 0).map(([n, what]) => `${n} ${what}`)
  const lines = [
    `run ${recorded.run}${target === undefined ? '' : `, ${escapeForTerminal(target)}`}: ${same} decisions are as recorded${notes.length > 0 ? ` (${notes.join(', ')})` : ''}; the code is ${sameCode ? 'the same' : 'another'}`,
  ]
  const [first] = divergences
  if (first === undefined) return [...lines, paint('green', 'no decision differs')]
  lines.push('', ...divergenceLines(first))
  const others = new Set(divergences.slice(1).map(d => d.about))
  others.delete(first.about)
  if (others.size > 0)
    lines.push('', `${others.size} more differ: ${[...others].slice(0, 8).join(', ')}${others.size > 8 ? ', …' : ''}`)
  return lines
}
