/**
 * `troupe replay learn STEP`: recomputes an optimizer step and prints it beside the record; exits with 1 when a metric
 * that must agree differs by more than the tolerance, or when today's code selects other members.
 */
import { type Command, Option } from 'commander'
import { relearn } from '../../replay/learning/relearn'
import { numberFrom, wholeNumber } from '../options/readers'
import { type ReadOptions, usageError, withLog, withRun } from './runOptions'
import { jsonText } from './text/jsonText'
import { learnedLines } from './text/learnedLines'

interface LearnOptions extends ReadOptions {
  readonly all?: boolean
  readonly check?: number
  readonly device?: string
  readonly dtype?: 'float32' | 'bfloat16'
  readonly threads?: number
  readonly json?: boolean
}

export function registerLearn(replay: Command): void {
  const command = replay
    .command('learn [step]')
    .description('recompute an optimizer step from its recorded batch, and compare it with the record')
    .option('--all', 'recompute every completed step after the oldest checkpoint on disk')
    .option(
      '--check <relative>',
      'largest allowed relative difference of loss and gradient norm (default: 1e-6; on another device, or for a run on several hosts, 1e-3; in another dtype 0.05, or an absolute difference of 0.004 for the loss)',
      numberFrom(0),
    )
    .option('--device <device>', "torch device (default: the run's)")
    .addOption(
      new Option('--dtype <dtype>', "precision of matrix products (default: the run's)").choices([
        'float32',
        'bfloat16',
      ]),
    )
    .option('--threads <n>', "CPU threads that torch uses (default: the run's)", wholeNumber(1, 1024))
    .option('--json', 'print one JSON line for each step')
  withRun(command).action(learn)
}

async function learn(asked: string | undefined, options: LearnOptions): Promise<void> {
  if (options.all !== true && (asked === undefined || !/^\d{1,9}$/.test(asked))) {
    throw usageError(
      'no_step',
      `${asked === undefined ? 'no step was named' : `'${asked}' is not the number of a step`}; expected a number, or --all`,
      '`troupe replay steps` lists the steps of a run',
    )
  }
  await withLog(options, async recorded => {
    let disagreed = 0
    for await (const { learned, check } of relearn(recorded, options.all ? 'all' : Number(asked), options)) {
      if (!learned.agrees) disagreed++
      process.stdout.write(`${options.json ? jsonText(learned) : learnedLines(learned, check).join('\n')}\n`)
    }
    process.exitCode = disagreed > 0 ? 1 : 0
  })
}
