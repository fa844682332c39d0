/**
 * `troupe replay steps`: prints the figures of each step and evaluation of a run; with --picture, its curves as an SVG.
 */
import type { Command } from 'commander'
import type { EvaluationCompleted } from '../../messages/facts'
import { problemsOf, scored, shownScore } from '../../replay/learning/evaluationScore'
import type { StepReport } from '../../replay/learning/progress'
import { runProgress, stepsAndEvaluations } from '../../replay/learning/runProgress'
import { roomOf } from '../io/fitColumns'
import { svgOf } from '../io/picture'
import { tableLines, wrapped } from '../io/table'
import { escapeForTerminal, percent } from '../io/terminal'
import { writeOut } from '../io/writeOut'
import { repeatable } from '../options/repeatable'
import { type ReadOptions, usageError, withLog, withRun } from './runOptions'
import { type NamedProgress, stepCurves } from './stepCurves'
import { jsonText } from './text/jsonText'

interface StepsOptions extends ReadOptions {
  readonly json?: boolean
  readonly picture?: string
  readonly beside: readonly string[]
}

export function registerSteps(replay: Command): void {
  const command = replay
    .command('steps')
    .description('print the figures of each step and evaluation: pass@1, tool errors, groups, loss')
    .option('--picture <file>', 'write the curves of the steps and evaluations as an SVG')
    .option('--beside <run>', 'draw another run too: a run of this bus, or BUS#RUN; may be repeated', repeatable, [])
    .option('--json', 'print one JSON line for each step and evaluation, as `train --json` does')
  withRun(command).action(steps)
}

async function steps(options: StepsOptions): Promise<void> {
  if (options.beside.length > 0 && options.picture === undefined) {
    throw usageError(
      'wrong_usage',
      '--beside adds runs to a picture, but --picture was not given',
      'add --picture FILE.svg',
    )
  }
  const own = await progressOf(options)
  const lines = stepsAndEvaluations(own.progress)
  if (options.json) process.stdout.write(lines.map(line => `${jsonLine(line)}\n`).join(''))
  else process.stdout.write(`${textLines(lines, roomOf(process.stdout)).join('\n')}\n`)
  if (lines.length === 0) process.stderr.write('no step has ended yet\n')
  if (options.picture === undefined) return
  const runs: NamedProgress[] = [own]
  const { at: _, ...elsewhere } = options
  for (const one of options.beside) {
    const [bus, run] = one.includes('#') ? (one.split('#', 2) as [string, string]) : [options.bus, one]
    runs.push(await progressOf({ ...elsewhere, bus, run }))
  }
  writeOut(options.picture, [await svgOf(stepCurves(runs))])
}

const progressOf = (options: ReadOptions): Promise<NamedProgress> =>
  withLog(options, async recorded => ({ name: recorded.run, progress: await runProgress(recorded) }))

const jsonLine = (line: StepReport | EvaluationCompleted): string =>
  jsonText(line.type === 'step' ? line : { ...line, ...scored(line) })

/** Lines of the table; evaluations stand between the steps, as sentences. */
function textLines(lines: readonly (StepReport | EvaluationCompleted)[], room: number | undefined): readonly string[] {
  const steps = lines.filter(line => line.type === 'step')
  const [head = '', ...rows] = tableLines(columns, order, steps.map(row), room)
  const left = [...rows]
  return [
    head,
    ...lines.flatMap(line => (line.type === 'step' ? [left.shift()!] : wrapped(evaluationRow(line), room, 6))),
  ]
}

const titles = [
  ...['step', 'pass@1', 'rollouts', 'errors in positives', 'errors', 'truncated', 'tokens', 'turns', 'groups'],
  ...['rejected', 'loss', 'grad norm', 'seconds'],
]
const columns = titles.map(title => ({ title, atEnd: true }))
/** Indexes of the columns, the most important first: a narrow terminal shows the first ones that fit. */
const order = [0, 1, 3, 6, 12, 5, 8, 9, 10, 7, 4, 2, 11]

function row(s: StepReport): readonly string[] {
  const metric = (name: string) => s.metrics[name] ?? Number.NaN
  return [
    String(s.step),
    s.passAt1.toFixed(3),
    String(s.rollouts),
    percent(s.toolErrorRateInPositives),
    percent(s.toolErrorRate),
    percent(s.truncatedShare),
    s.meanTokens.toFixed(0),
    s.meanTurns.toFixed(1),
    String(s.groupsSelected),
    String(s.groupsRejected),
    metric('loss').toFixed(4),
    metric('gradNorm').toFixed(3),
    s.stepSeconds.toFixed(1),
  ]
}

function evaluationRow(fact: EvaluationCompleted): string {
  const { step, name, samples } = fact
  const often = samples > 1 ? ` × ${samples}` : ''
  const label = `${step === 0 ? 'before' : `after ${step}`}, ${escapeForTerminal(name)}`
  return `      ${shownScore(fact)} on ${problemsOf(fact)}${often} problems (${label})`
}
