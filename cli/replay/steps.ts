/**
 * `troupe replay steps`: what each step and each evaluation of a run came to.
 *
 * in   the facts of one run, and of others beside it        out  a line a step; with --picture their curves as an SVG
 * The figures are those of `train --json`, by the same fold.
 */

import type { Command } from 'commander'
import { fence } from '../../actors/ownership/fencing'
import type { EvaluationCompleted, Fact } from '../../messages/facts'
import { problemsOf, scored, shownScore } from '../../replay/learning/evaluationScore'
import { type Progress, progress, type StepReport } from '../../replay/learning/progress'
import { configOf } from '../../replay/log/recordedConfig'
import type { RecordedRun } from '../../replay/log/recordedRun'
import { TroupeError } from '../../runtime/errors'
import { svgOf } from '../io/picture'
import { escapeForTerminal, percent } from '../io/terminal'
import { writeOut } from '../io/writeOut'
import { repeatable } from '../options/repeatable'
import { jsonText } from './jsonText'
import { openRecorded, type ReadOptions, reportFaults, withRun } from './runOptions'
import { type NamedProgress, stepCurves } from './stepCurves'

interface StepsOptions extends ReadOptions {
  readonly json?: boolean
  readonly picture?: string
  readonly beside: readonly string[]
}

export function registerSteps(replay: Command): void {
  const command = replay
    .command('steps')
    .description('what each step and each evaluation came to: pass@1, tool errors, groups, loss')
    .option('--picture <file>', 'their curves, as an SVG')
    .option(
      '--beside <run>',
      'another run in the picture, of this bus or as BUS#RUN; may be given again',
      repeatable,
      [],
    )
    .option('--json', 'a JSON line for each, as of `train --json`')
  withRun(command).action(steps)
}

async function steps(options: StepsOptions): Promise<void> {
  if (options.beside.length > 0 && options.picture === undefined) {
    throw new TroupeError('cli.wrong_usage', {
      boundary: 'cli',
      retriable: false,
      message: '--beside is for a picture, and none was asked for',
      hint: 'add --picture FILE.svg',
    })
  }
  const own = await progressOf(options)
  const { evaluations } = own.progress
  const said = (line: StepReport | EvaluationCompleted) => (line.type === 'step' ? line : { ...line, ...scored(line) })
  if (options.json) for (const line of merged(own.progress)) process.stdout.write(`${jsonText(said(line))}\n`)
  else {
    process.stdout.write(`${header}\n`)
    for (const line of merged(own.progress)) {
      process.stdout.write(`${line.type === 'step' ? row(line) : evaluationRow(line)}\n`)
    }
  }
  if (own.progress.steps.length === 0 && evaluations.length === 0) process.stderr.write('no step has ended yet\n')
  if (options.picture === undefined) return
  const runs: NamedProgress[] = [own]
  const { at: _, ...elsewhere } = options
  for (const one of options.beside) {
    const [bus, run] = one.includes('#') ? (one.split('#', 2) as [string, string]) : [options.bus, one]
    runs.push(await progressOf({ ...elsewhere, bus, run }))
  }
  writeOut(options.picture, [await svgOf(stepCurves(runs))])
}

async function progressOf(options: ReadOptions): Promise<NamedProgress> {
  const recorded = await openRecorded(options)
  try {
    const { positiveAbove } = (await configOf(recorded)).selection
    return { name: recorded.run, progress: await fold(recorded, positiveAbove) }
  } finally {
    reportFaults(recorded)
    await recorded.close()
  }
}

/** Rollouts first: the end of a step reports what is known of them by then. */
async function fold(recorded: RecordedRun, positiveAbove: number): Promise<Progress> {
  const folded = progress({ positiveAbove })
  const counts = fence()
  for (const topic of ['trajectories', 'runs', 'learner'] as const) {
    await recorded.scan(topic, entry => {
      if (counts(entry)) folded.take(entry.message as Fact)
    })
  }
  return folded
}

/** An evaluation after step n stands behind that step. */
function merged({ steps: all, evaluations }: Progress): (StepReport | EvaluationCompleted)[] {
  const lines: (StepReport | EvaluationCompleted)[] = [...all, ...evaluations]
  return lines.sort((a, b) => a.step - b.step || (a.type === 'step' ? -1 : 1))
}

const header =
  'step  pass@1  rollouts  errors in positives   errors  truncated  tokens  turns  groups  rejected      loss  grad norm  seconds'

function row(s: StepReport): string {
  const metric = (name: string) => s.metrics[name] ?? Number.NaN
  return [
    String(s.step).padStart(4),
    s.passAt1.toFixed(3).padStart(6),
    String(s.rollouts).padStart(8),
    percent(s.toolErrorRateInPositives).padStart(19),
    percent(s.toolErrorRate).padStart(7),
    percent(s.truncatedShare).padStart(9),
    s.meanTokens.toFixed(0).padStart(6),
    s.meanTurns.toFixed(1).padStart(5),
    String(s.groupsSelected).padStart(6),
    String(s.groupsRejected).padStart(8),
    metric('loss').toFixed(4).padStart(8),
    metric('gradNorm').toFixed(3).padStart(9),
    s.stepSeconds.toFixed(1).padStart(7),
  ].join('  ')
}

function evaluationRow(fact: EvaluationCompleted): string {
  const { step, name, samples } = fact
  const often = samples > 1 ? ` × ${samples}` : ''
  const label = `${step === 0 ? 'before' : `after ${step}`}, ${escapeForTerminal(name)}`
  return `      ${shownScore(fact)} on ${problemsOf(fact)}${often} problems (${label})`
}
