/**
 * Writes results of evaluations as Markdown, JSON and a picture, beside the paper's figures for the same benchmarks.
 *
 * in   benchmarks with their `evaluation.completed` and details from the log        out  text, files
 */
import { basename } from 'node:path'
import type { EvaluationCompleted } from '../../messages/facts'
import type { Benchmark } from '../../recipes/benchmarks'
import { problemsOf, scored } from '../../replay/learning/evaluationScore'
import { percent } from '../io/terminal'
import { readyOut, writeOut } from '../io/writeOut'
import type { EvaluationDetails } from './details'
import { type PictureRow, pictureOf } from './picture'

export interface Evaluated {
  readonly benchmark: Benchmark
  readonly result: EvaluationCompleted
  readonly details?: EvaluationDetails
  readonly run?: string
}

const suspectsShown = 20

/** Paths of the report's files: the given Markdown file `F.md`, and `F.json` and `F.svg` beside it. */
function filesOf(file: string) {
  const stem = file.replace(/\.(md|markdown)$/, '')
  return { text: file, data: `${stem}.json`, picture: `${stem}.svg` }
}

/** Checks before a long evaluation that the report can be written. @throws TroupeError cli.cannot_write */
export function readyReport(file: string | undefined): void {
  if (file !== undefined) for (const one of Object.values(filesOf(file))) readyOut(one)
}

export function writeReport(file: string, all: readonly Evaluated[], model: string): void {
  const { data, picture } = filesOf(file)
  writeOut(picture, [pictureOf(all.flatMap(pictureRows))])
  const json = all.map(one => jsonOf(one, model))
  writeOut(data, [`${JSON.stringify(json, null, 2)}\n`])
  const parts = all.map(({ benchmark, result, details }) => reportOf(benchmark, result, details))
  const summary = all.length < 2 ? [] : [summaryOf(all)]
  writeOut(file, [[...summary, ...parts, `![Beside the paper](${basename(picture)})\n`].join('\n')])
}

const jsonOf = ({ benchmark, result, details, run }: Evaluated, model: string) => {
  const { samples, asked, metrics } = result
  const { name, title, score, printed } = benchmark
  return { benchmark: name, title, score, model, run, ...scored(result), samples, asked, metrics, details, printed }
}

function pictureRows({ benchmark, result }: Evaluated): PictureRow[] {
  const { title, printed } = benchmark
  const own: PictureRow = {
    ...{ benchmark: title, model: 'this model', ours: true },
    ...(result.n === 0
      ? { accuracy: null }
      : {
          accuracy: 100 * result.passAt1,
          ...(result.standardError === null ? {} : { error: 100 * result.standardError }),
          tokens: result.metrics.meanTokens ?? 0,
        }),
  }
  const theirs = printed.map(({ model, accuracy, tokens }) => ({
    ...{ benchmark: title, model, ours: false, accuracy },
    ...(tokens === undefined ? {} : { tokens }),
  }))
  return [own, ...theirs]
}

function summaryOf(all: readonly Evaluated[]): string {
  const rows = all.map(({ benchmark, result }) => [
    benchmark.title,
    scoreOf(result),
    tokensOf(result),
    countOf(result),
    benchmark.printed[0]?.accuracy.toFixed(1) ?? '–',
  ])
  const head = ['', 'this model', 'tokens', 'problems × samples', 'rStar2-Agent-14B']
  return `# Evaluations\n\n${table(head, rows)}\n`
}

/** Share of tool calls that failed; null when no call was made. */
export const failedCallsOf = ({ metrics }: Pick<EvaluationCompleted, 'metrics'>): number | null =>
  metrics.toolCalls ? (metrics.toolErrorRate ?? null) : null

/**
 * A row for each pass@k (k a power of 2) in the metrics, k ascending; then one for k = number of samples, if there is
 * more than one sample.
 */
function passAtRows({ metrics, samples }: EvaluationCompleted): (readonly [string, string])[] {
  const powers = Object.keys(metrics).flatMap(name => /^passAt(\d+)$/.exec(name)?.[1] ?? [])
  powers.sort((a, b) => Number(a) - Number(b))
  const rows = powers.map(k => [`pass@${k}`, percent(metrics[`passAt${k}`]!)] as const)
  return samples > 1 ? [...rows, [`pass@${samples}`, percent(metrics.passAtK ?? 0)]] : rows
}

export function reportOf(benchmark: Benchmark, result: EvaluationCompleted, details?: EvaluationDetails): string {
  const { metrics } = result
  const rows: (readonly [string, string])[] = [
    [benchmark.score, scoreOf(result)],
    ...passAtRows(result),
    ...(details?.instructionAccuracy == null
      ? []
      : [['strict, instructions', percent(details.instructionAccuracy)] as const]),
    ['problems × samples', countOf(result)],
    ['sampled tokens, mean', tokensOf(result)],
    ['tool calls', String(metrics.toolCalls ?? 0)],
    ['failed tool calls', percent(failedCallsOf(result))],
    ['ended by a limit', percent(metrics.truncatedShare ?? 0)],
    ['failed, not counted', String(metrics.failed ?? 0)],
    ['without a reward, not counted', `${metrics.unjudged ?? 0}${reasonsOf(details?.unjudged)}`],
    ...(details === undefined || countsOf(details.how) === ''
      ? []
      : [['how answers were judged', inCell(countsOf(details.how))] as const]),
  ]
  const parts = [`# ${benchmark.title}`, table(['', ''], rows)]
  const categories = Object.entries(details?.categories ?? {})
  if (categories.length > 1) {
    const lines = categories.map(([name, { score, n: many }]) => [name, percent(score), String(many)])
    parts.push(table(['category', benchmark.score, 'problems'], lines))
  }
  const suspects = details?.suspects ?? []
  if (suspects.length > 0) {
    parts.push(
      `${suspects.length} problems whose samples agree on an answer that differs from the expected one (which may be wrong):`,
      table(
        ['problem', 'truth', 'answer', 'samples'],
        suspects.slice(0, suspectsShown).map(one => [one.task, one.truth, one.answer, String(one.samples)].map(inCell)),
      ),
    )
  }
  const beside = besideThePaper(benchmark, result)
  if (beside !== '')
    parts.push(`Beside what arXiv 2508.20722 prints (${benchmark.score} in %, mean response tokens):`, beside)
  return `${parts.join('\n\n')}\n`
}

export const reasonsOf = (unjudged: Readonly<Record<string, number>> = {}) => {
  const reasons = countsOf(unjudged)
  return reasons === '' ? '' : ` (${reasons})`
}

/** Formats counts as text, the most frequent first: `no-answer 14, integer 2`. */
export const countsOf = (counts: Readonly<Record<string, number>>): string =>
  Object.entries(counts)
    .sort(([, a], [, b]) => b - a)
    .map(([name, n]) => `${name} ${n}`)
    .join(', ')

/** Table of this result and the paper's figures; empty when the paper prints none. */
export function besideThePaper({ printed, score }: Benchmark, result: EvaluationCompleted): string {
  if (printed.length === 0) return ''
  const ours = ['this model', result.n === 0 ? '–' : (100 * result.passAt1).toFixed(1), tokensOf(result)]
  const theirs = printed.map(({ model, accuracy, tokens }) => [model, accuracy.toFixed(1), tokens?.toFixed(0) ?? '–'])
  return table(['model', score, 'tokens'], [ours, ...theirs])
}

export const scoreOf = ({ passAt1, standardError, n }: EvaluationCompleted): string =>
  n === 0
    ? '–'
    : `${(100 * passAt1).toFixed(1)}${standardError === null ? '' : ` ± ${(100 * standardError).toFixed(1)}`} %`

/** Formats the mean number of sampled tokens of the judged answers; `–` when none was judged. */
export const tokensOf = ({ n, metrics }: EvaluationCompleted): string =>
  n === 0 ? '–' : (metrics.meanTokens ?? 0).toFixed(0)

const countOf = (result: EvaluationCompleted): string =>
  `${problemsOf(result)} × ${result.n === 0 ? (result.asked?.samples ?? 0) : result.samples}`

/** Escapes a model's text for a Markdown cell, as the text may hold `|` or HTML, and cuts it to 160 characters. */
const inCell = (text: string) =>
  text
    .replace(/[\p{Cc}]/gu, ' ')
    .replace(/[|\\`<>&[\]*_]/g, c => `&#${c.charCodeAt(0)};`)
    .slice(0, 160)

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = head.map((title, at) => Math.max(3, title.length, ...rows.map(row => row[at]!.length)))
  const line = (cells: readonly string[]) => `| ${cells.map((cell, at) => cell.padEnd(widths[at]!)).join(' | ')} |`
  return [line(head), line(widths.map(width => '-'.repeat(width))), ...rows.map(line)].join('\n')
}
