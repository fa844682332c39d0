/** Shows an evaluation: progress while it runs, then its result; JSON lines with --json. */
import type { EvaluationCompleted } from '../../messages/facts'
import type { Benchmark } from '../../recipes/benchmarks'
import { problemsOf } from '../../replay/learning/evaluationScore'
import type { summaryOf } from '../../replay/learning/progress'
import { roomOf } from '../io/fitColumns'
import { wrapped } from '../io/table'
import { duration, percent } from '../io/terminal'
import { type RunView, type TrainViewOptions, trainView } from '../train/view'
import { besideThePaper, failedCallsOf, scoreOf, tokensOf } from './report'

type Summary = ReturnType<typeof summaryOf>

export function evalView(
  benchmark: Benchmark,
  options: TrainViewOptions,
  onResult: (result: EvaluationCompleted) => void,
): RunView & { over(summary: Summary): void } {
  const { config, json, run, place = '' } = options
  const { title, score } = benchmark
  const { problems, samples, temperature } = config.evaluation
  const view = trainView(options)
  const out = (text: string): void => {
    const lines = text.split('\n').flatMap(line => wrapped(line, roomOf(process.stdout), 16))
    process.stdout.write(`${lines.join('\n')}\n`)
  }
  let result: EvaluationCompleted | undefined
  function show(summary: Summary): void {
    if (result === undefined) {
      out(`${title}: ${summary.outcome}, ${summary.reason}`)
      return
    }
    const { metrics } = result
    const best = result.samples > 1 ? `  pass@${result.samples} ${percent(metrics.passAtK ?? 0)}` : ''
    out(`${title}  ${score} ${scoreOf(result)}${best}  (${problemsOf(result)} problems)`)
    out(`sampled tokens  ${tokensOf(result)} an answer, ${percent(metrics.truncatedShare ?? 0)} ended by a limit`)
    out(`tool calls      ${metrics.toolCalls ?? 0}, ${percent(failedCallsOf(result))} failed`)
    if ((metrics.failed ?? 0) > 0) out(`failed          ${metrics.failed} answers, which do not count`)
    if ((metrics.unjudged ?? 0) > 0) out(`no reward       ${metrics.unjudged} answers, which do not count`)
    out(`wall time       ${duration(summary.wallSeconds)}`)
    const beside = besideThePaper(benchmark, result)
    if (beside !== '') out(`\nBeside what arXiv 2508.20722 prints:\n${beside}\n`)
    out(`inspect it      npx troupe replay ls --run ${summary.run}${place}`)
  }
  return {
    ...view,
    begin() {
      const how = `${problems} problems × ${samples} at temperature ${temperature}, up to ${config.limits.responseTokens} tokens`
      if (!json) process.stderr.write(`run ${run}: ${title}, ${how} and ${config.limits.turns} turns\n`)
    },
    evaluation(fact) {
      result = fact
      onResult(fact)
      if (json) view.evaluation(fact)
    },
    tick(state) {
      const { asked, finished, kvShare } = state.running
      view.draw(`answers ${finished}/${asked}  KV ${percent(kvShare, 0)}`)
    },
    end(summary, cpu) {
      if (json) return view.end(summary, cpu)
      view.close()
      show(summary)
    },
    /** Prints the summary of an evaluation that an earlier process finished. */
    over(summary: Summary) {
      if (json) process.stdout.write(`${JSON.stringify(summary)}\n`)
      else show(summary)
    },
  }
}
