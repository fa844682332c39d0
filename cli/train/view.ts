/**
 * Prints the output of `train` and `rollout`: a line for each step and a summary at the end, or JSON lines with
 * --json; on a terminal also a moving line with the progress. `eval` uses parts of it.
 */

import { neededToResume } from '../../actors/curriculum/outlook'
import type { RecipeConfig } from '../../config'
import type {
  AlarmRaised,
  ControlObeyed,
  ControlOrder,
  EvaluationCompleted,
  RecordRefused,
  RewardFailed,
  StageChanged,
  StageProgressed,
} from '../../messages/facts'
import { problemsOf, type Score, scored, shownScore } from '../../replay/learning/evaluationScore'
import type { Progress, StepReport, summaryOf } from '../../replay/learning/progress'
import type { Effects } from '../../runtime/effects'
import { fitColumns, roomOf } from '../io/fitColumns'
import { duration, escapeForTerminal, painter, percent } from '../io/terminal'
import type { CpuSplit } from './cpuUse'

export interface TrainViewOptions {
  readonly json: boolean
  readonly config: RecipeConfig
  readonly run: string
  /** Steps of the recipe; more than `config.train.steps` if --steps ends the run early. */
  readonly recipeSteps?: number
  /** Options with which another command finds the run, such as `--bus lmdb:DIR`; empty if it needs none. */
  readonly place?: string
  /** Command that resumes the run; undefined for a process with one role, which is started again as it was. */
  readonly resumedBy?: string
  readonly fx: Effects
}

export type RunView = ReturnType<typeof trainView>

const barWidth = 24
const redrawMs = 100
/** Interval, ms, of reports on a cold start's progress when stderr is no terminal: the cold start may take minutes. */
const coldStartEveryMs = 30_000
const shownRefused = 5
const orderSays: Readonly<Record<ControlOrder, string>> = {
  pause: 'starts no turn and no step, and requests no rollouts',
  resume: 'continues',
  drain: 'ends once the steps whose rollouts are requested already are over',
  abort: 'ends now',
}
const clockMs = 1000
// biome-ignore lint/suspicious/noControlCharactersInRegex: colours are control sequences
const colours = /\u001b\[\d+m/g
/** Upper bound on the kinds (`how`) of failed rewards that are counted; failures of later kinds are not counted. */
const mostReasons = 8

export function trainView(options: TrainViewOptions) {
  const { config, json, fx } = options
  const paint = painter(process.stdout)
  const live = process.stderr.isTTY === true
  let [stepCount, stepSeconds] = [0, 0]
  const refused = new Set<string>()
  let last: StepReport | undefined
  let drawnAt = 0
  let drawn = false
  let note = 'starting: model, engines, tools'
  let quarters = -1
  let coldStartSaidAt = 0
  const begun = fx.elapsed()
  let shown = note
  let clock: NodeJS.Timeout | undefined
  const failures = new Map<string, { how: string; why: string; count: number }>()

  const out = (text: string) => {
    erase()
    process.stdout.write(`${text}\n`)
  }
  const say = (text: string) => {
    erase()
    process.stderr.write(`${text}\n`)
  }
  function erase(): void {
    if (drawn) process.stderr.write('\r\u001b[K')
    drawn = false
  }
  function draw(text: string): void {
    shown = text
    if (!live || json) return
    const now = fx.elapsed()
    if (now - drawnAt < redrawMs) return
    drawnAt = now
    const line = `${duration((now - begun) / 1000)}  ${text}`
    process.stderr.write(`\r\u001b[K${line.slice(0, (process.stderr.columns ?? 120) - 1)}`)
    drawn = true
  }
  const bar = (share: number) => {
    const full = Math.round(Math.min(1, share) * barWidth)
    return `${'█'.repeat(full)}${'·'.repeat(barWidth - full)}`
  }

  return {
    draw,
    begin() {
      if (!json)
        say(
          `run ${options.run}: ${config.train.steps} steps of ${config.rollout.groupsPerStep} groups × ${config.rollout.groupSize}`,
        )
      draw(shown)
      // The line shows that time passes while nothing else happens: engines load for seconds to minutes.
      if (live && !json) clock = setInterval(() => draw(shown), clockMs).unref()
    },
    /** Reports, in a run with roles, that this process is the active learner or stands by for it. */
    standing(standing: 'standing-by' | 'active') {
      say(
        standing === 'active' ? `learner of run ${options.run}: active` : `learner of run ${options.run}: standing by`,
      )
    },
    progress({ done, loss, leftSeconds }: StageProgressed) {
      const left = leftSeconds === undefined ? '' : `, ${duration(leftSeconds)} left`
      note = `cold start ${percent(done, 0)}, loss ${loss.toFixed(3)}${left}`
      if (live || json) return draw(note)
      const now = fx.elapsed()
      // Prints a line when the cold start begins, at each quarter of it, and when half a minute has passed without one.
      if (Math.floor(done * 4) <= quarters && now - coldStartSaidAt < coldStartEveryMs) return
      quarters = Math.floor(done * 4)
      coldStartSaidAt = now
      say(note)
    },
    stage(fact: StageChanged) {
      if (!json) say(`${fact.stage}: ${fact.reason}`)
    },
    /** Reports that the run obeys an order of `troupe control`, or that a resumed run is still paused. */
    order({ order, reason }: ControlObeyed) {
      const why = reason === '' ? '' : ` (${escapeForTerminal(reason)})`
      const goOn =
        order === 'pause' ? `; to continue: npx troupe control ${options.run} resume${options.place ?? ''}` : ''
      say(`${order}${why}: the run ${orderSays[order]}${goOn}`)
    },
    /** Counts a reward that failed; the summary at the end lists the counted kinds, the most frequent first. */
    rewardFailed({ how, why }: RewardFailed) {
      const known = failures.get(how) ?? { how, why, count: 0 }
      if (failures.size < mostReasons || known.count > 0) failures.set(how, { ...known, count: known.count + 1 })
    },
    alarm(fact: AlarmRaised) {
      say(`alarm: ${fact.alarm}: ${fact.message}`)
    },
    /**
     * Reports a record that was refused. Several processes may refuse the same record; only the first few records are
     * shown.
     */
    refused({ origin, error }: RecordRefused) {
      if (refused.has(origin) || refused.size >= shownRefused) return
      refused.add(origin)
      say(`left out ${escapeForTerminal(origin)}, which could not be read or applied: ${escapeForTerminal(error)}`)
      if (refused.size === shownRefused)
        say('further refused records are not shown here; `troupe replay verify` lists all')
    },
    evaluation(fact: EvaluationCompleted) {
      if (json) {
        const { step, version, asked, metrics } = fact
        out(JSON.stringify({ type: 'evaluation', step, version, ...scored(fact), asked, metrics }))
        return
      }
      const score = paint('green', shownScore(fact))
      out(
        `${paint('bold', `evaluation after step ${fact.step}`)}  pass@1 ${score} on ${problemsOf(fact)} problems not trained on`,
      )
    },
    step(report: StepReport) {
      last = report
      stepCount++
      stepSeconds += report.stepSeconds
      if (json) {
        out(JSON.stringify(report))
        return
      }
      const width = String(config.train.steps).length
      const cells = [
        `step ${String(report.step).padStart(width)}`,
        `pass@1 ${report.passAt1.toFixed(3)} ${bar(report.passAt1)}`,
        `tool errors in positives ${percent(report.toolErrorRateInPositives).padStart(6)}`,
        `${Math.round(report.rolloutTokensPerSecond)} tokens/s`,
        `${report.meanTokens.toFixed(0)} tokens`,
        `kept ${report.groupsSelected}/${report.groupsSelected + report.groupsRejected}`,
        ...(report.failedRewards > 0 ? [paint('red', `${report.failedRewards} rewards failed`)] : []),
        duration(report.stepSeconds).padStart(6),
      ]
      const order = [0, 1, ...cells.map((_, at) => at).filter(at => at > 1)]
      const widths = cells.map(cell => cell.replace(colours, '').length)
      const fits = fitColumns(widths, order, roomOf(process.stdout))
      out(
        cells
          .filter((_, at) => fits[at])
          .map((cell, at) => (at === cells.length - 1 ? cell.trimStart() : cell))
          .join('  '),
      )
    },
    /** Updates the moving line: step, pass@1, tool errors, tokens/s, KV use, time left. */
    tick(state: Progress) {
      const { asked, finished, kvShare } = state.running
      if (asked === 0) return draw(note)
      const mean = stepSeconds / Math.max(1, stepCount)
      const left = last === undefined ? '' : `  ${duration(mean * (config.train.steps - last.step))} left`
      const before =
        last === undefined
          ? ''
          : `  pass@1 ${last.passAt1.toFixed(2)}  tool errors ${percent(last.toolErrorRateInPositives, 0)}  ${Math.round(last.rolloutTokensPerSecond)} tokens/s`
      draw(
        `step ${(last?.step ?? 0) + 1}/${config.train.steps}  rollouts ${finished}/${asked}${before}  KV ${percent(kvShare, 0)}${left}`,
      )
    },
    /** Prints the summary. @param runSeconds seconds since the run's first process started it */
    end(summary: ReturnType<typeof summaryOf>, cpu: CpuSplit, runSeconds = summary.wallSeconds) {
      if (json) {
        const rewardFailures = failures.size === 0 ? {} : { rewardFailures: [...failures.values()] }
        const peakMib = Math.round(cpu.peakMib)
        out(JSON.stringify({ ...summary, runSeconds, ...rewardFailures, cpuSeconds: cpu.seconds, peakMib }))
        return
      }
      const { evalBefore, evalAfter, toolErrorsInPositives: errors } = summary
      const { recipeSteps = config.train.steps, place = '', resumedBy } = options
      const score = (e: Score) => `${shownScore(e)} (n ${e.n})`
      // A run that its last stage ended before `train.steps` is not short: resuming it would make no further step.
      const isShort = summary.outcome === 'done' && summary.steps >= config.train.steps && summary.steps < recipeSteps
      const parts = Object.entries(cpu.seconds)
      const total = parts.reduce((sum, [, s]) => sum + s, 0)
      out('')
      const ending = isShort
        ? `stopped after step ${summary.steps} of ${recipeSteps}`
        : `${summary.outcome}, ${summary.reason}`
      out(`${paint('bold', summary.run)}: ${ending}`)
      const row = (name: string, values: readonly (string | null)[]) => {
        const known = values.filter(value => value !== null)
        if (known.length > 0) out(`${name.padEnd(26)}${known.join(' → ')}`)
      }
      row(
        'pass@1',
        [evalBefore, evalAfter].map(e => e && score(e)),
      )
      row(
        'tool errors in positives',
        [errors.first, errors.last].map(share => (share === null ? null : percent(share))),
      )
      for (const { how, why, count } of [...failures.values()].sort((a, b) => b.count - a.count))
        out(`${paint('red', 'rewards failed'.padEnd(26))}${count} × ${escapeForTerminal(`${how}: ${why}`)}`)
      // A process that resumed the run measured only its own time and the steps since.
      const isWhole = stepCount === summary.steps
      const steps = isWhole ? summary.steps : `${stepCount} of ${summary.steps}`
      const before = isWhole ? '' : ` in this process; the run began ${duration(runSeconds)} ago`
      out(`wall time                 ${duration(summary.wallSeconds)} for ${steps} steps${before}`)
      out(
        `${(isWhole ? 'CPU time' : 'CPU time of this process').padEnd(26)}${parts.map(([part, s]) => `${part} ${s.toFixed(0)} s (${percent(s / total, 0)})`).join(', ')}`,
      )
      out(`peak memory               ${Math.round(cpu.peakMib)} MiB`)
      out(`look at it                npx troupe replay ls --run ${summary.run}${place}`)
      if (resumedBy === undefined || (summary.outcome === 'done' && !isShort)) return
      const needed = neededToResume(summary.reason, config.selection.refillShare)
      const more = isShort ? ` --steps ${recipeSteps}` : needed === undefined ? '' : ` --set ${needed}`
      out(`continue with             ${resumedBy}${more}`)
      if (needed !== undefined)
        out(`${''.padEnd(26)}which draws as many groups again; without it the run ends at the same step`)
    },
    close() {
      clearInterval(clock)
      erase()
    },
  }
}
