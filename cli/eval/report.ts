/**
 * An evaluation's result as Markdown, beside what the paper prints for the same benchmark.
 *
 * in   a benchmark, `evaluation.completed`        out  text
 */
import type { EvaluationCompleted } from '../../messages/facts'
import type { Benchmark } from '../../recipes/benchmarks'
import { percent } from '../terminal'

export function reportOf(benchmark: Benchmark, result: EvaluationCompleted): string {
  const { metrics, samples, n } = result
  const rows = [
    ['pass@1', scoreOf(result)],
    [`pass@${samples}`, percent(metrics.passAtK ?? 0)],
    ['problems × samples', `${n} × ${samples}`],
    ['sampled tokens, mean', (metrics.meanTokens ?? 0).toFixed(0)],
    ['tool calls', String(metrics.toolCalls ?? 0)],
    ['failed tool calls', percent(metrics.toolErrorRate ?? 0)],
    ['ended by a limit', percent(metrics.truncatedShare ?? 0)],
    ['failed, not counted', String(metrics.failed ?? 0)],
  ] as const
  const parts = [`# ${benchmark.title}`, table(['', ''], rows)]
  const beside = besideThePaper(benchmark, result)
  if (beside !== '') parts.push('Beside what arXiv 2508.20722 prints (pass@1 in %, mean response tokens):', beside)
  return `${parts.join('\n\n')}\n`
}

/** Empty where the paper has no figures. */
export function besideThePaper({ printed }: Benchmark, result: EvaluationCompleted): string {
  if (printed.length === 0) return ''
  const ours = ['this model', (100 * result.passAt1).toFixed(1), (result.metrics.meanTokens ?? 0).toFixed(0)]
  const theirs = printed.map(({ model, accuracy, tokens }) => [model, accuracy.toFixed(1), tokens?.toFixed(0) ?? '–'])
  return table(['model', 'pass@1', 'tokens'], [ours, ...theirs])
}

export const scoreOf = ({ passAt1, standardError }: EvaluationCompleted): string =>
  `${(100 * passAt1).toFixed(1)} ± ${(100 * standardError).toFixed(1)} %`

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = head.map((title, at) => Math.max(3, title.length, ...rows.map(row => row[at]!.length)))
  const line = (cells: readonly string[]) => `| ${cells.map((cell, at) => cell.padEnd(widths[at]!)).join(' | ')} |`
  return [line(head), line(widths.map(width => '-'.repeat(width))), ...rows.map(line)].join('\n')
}
