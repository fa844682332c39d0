/**
 * `troupe eval NAME|all`: a model answers a benchmark's problems, K times each, through the same actors as training.
 * stdout: with --json a line with the result and a summary, else the result beside the paper's table; stderr: progress.
 * A run like others: it can be resumed after a crash, and `replay` shows its trajectories. `all` evaluates on every benchmark
 * whose file lies in the directory given, a run each, and says which it found none of.
 */

import { existsSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { Command } from 'commander'
import { closest } from 'fastest-levenshtein'
import { recipeSchema } from '../../config'
import type { RunStarted } from '../../messages/facts'
import { type Benchmark, benchmarks } from '../../recipes/benchmarks'
import { resolveConfig } from '../../runtime/settings/resolveConfig'
import { withBus } from '../options/busOptions'
import { numberFrom, wholeNumber } from '../options/readers'
import { repeatable } from '../options/repeatable'
import { timestamp } from '../train'
import { type EvalOptions, evaluateOne, fieldsOf, wrong } from './one'
import { recordedEvaluation } from './recorded'
import { type Evaluated, readyReport, writeReport } from './report'
import { refuseDropped, refuseOther } from './resumed'

export function registerEval(program: Command): void {
  const names = [...benchmarks.keys()].join(', ')
  const command = program
    .command('eval <name>')
    .description(`evaluate a model on a benchmark: ${names}; or on all that a directory holds: all`)
    .option('--data <file>', 'the problems, as the benchmark is published; with `all` a directory of such files')
    .option('--answers <file>', "bfcl: the possible answers; arena-hard: the baseline's answers")
    .option('--judge <url>', 'arena-hard: an OpenAI-compatible server')
    .option('--judge-model <name>', 'arena-hard: one of its models')
    .option('--judge-key-env <name>', "arena-hard: the environment variable that holds the server's key")
    .option('--model <dir>', 'a directory that transformers loads')
    .option('--samples <k>', "answers to each problem (default: the paper's)", wholeNumber(1, 1024))
    .option('--temperature <t>', "default: the paper's", numberFrom(0))
    .option(
      '--max-tokens <n>',
      'of an answer, tools aside (default 30000, or what fits the model)',
      wholeNumber(1, 2 ** 24),
    )
    .option('--turns <n>', 'default 30, or 1 without tools', wholeNumber(1, 10_000))
    .option('--limit <n>', 'only the first problems', wholeNumber(1, 2 ** 31))
    .option('--system <text>', 'system message, or @FILE, for a model that was trained on one of its own; empty: none')
    .option('--prefix <text>', 'text before every problem, or @FILE')
    .option('--report <file>', 'write the result as Markdown, and beside it as JSON and as a picture (SVG)')
    .option(
      '--engine <address>',
      'local, vllm:URL, sglang:URL or openai:URL, many times; recorded:RUN or simulated:FILE',
      repeatable,
      [],
    )
    .option('--set <path=value>', 'override a field of the recipe; may be given many times', repeatable, [])
    .option('--json', 'a JSON line with the result, last a summary')
    .option('--run <id>', 'name of the run (default: benchmark and time)')
    .option(
      '--resume <id>',
      'go on with an evaluation, from the turns it was at; with `all`, give the other options again',
    )
    .option('--accept-code', 'resume a run that other code started')
  withBus(command).action(async (name: string, options: EvalOptions) => {
    process.exitCode = name === 'all' ? await evaluateAll(options) : await evaluate(name, options)
  })
}

async function evaluate(name: string, options: EvalOptions): Promise<number> {
  const benchmark = benchmarks.get(name)
  if (benchmark === undefined) {
    const names = [...benchmarks.keys(), 'all']
    throw wrong(
      `there is no benchmark '${name}'`,
      `benchmarks: ${names.join(', ')}; did you mean '${closest(name, names)}'?`,
    )
  }
  refuseDropped(options)
  readyReport(options.report)
  const before = await recordedEvaluation(options.bus, options.resume)
  if (before.state !== 'none') refuseOther(benchmark, before.started)
  const { code, evaluated } = await evaluateOne(benchmark, options, before)
  const model = options.model ?? (before.state === 'none' ? undefined : modelOf(before.started))
  report(options.report, evaluated === undefined ? [] : [evaluated], model)
  return code
}

async function evaluateAll(options: EvalOptions): Promise<number> {
  const { resume, run = resume ?? `eval-all-${timestamp()}`, ...given } = options
  const { data } = given
  if (data === undefined || !existsSync(data) || !statSync(data).isDirectory()) {
    throw wrong('eval all needs the files of the benchmarks', 'give a directory: --data DIR')
  }
  const found = [...benchmarks.values()].map(benchmark => ({ benchmark, files: filesOf(benchmark, data, options) }))
  readyReport(options.report)
  const all: Evaluated[] = []
  let code = 0
  for (const { benchmark, files } of found) {
    if (typeof files === 'string') {
      process.stderr.write(`${benchmark.name}: left out, ${files}\n`)
      continue
    }
    const name = `${run}-${benchmark.name}`
    const before = await recordedEvaluation(options.bus, resume === undefined ? undefined : name)
    const own = { ...given, ...files }
    if (before.state !== 'none') refuseOther(benchmark, before.started, await fieldsOf(benchmark, own), own.set)
    // Those that were begun go on, and the others begin.
    const named = before.state === 'none' ? { run: name } : { resume: name }
    const one = await evaluateOne(benchmark, { ...own, ...named }, before)
    if (one.evaluated !== undefined) all.push(one.evaluated)
    code = Math.max(code, one.code)
    if (one.code >= 128) break // stopped by a signal
  }
  if (all.length === 0 && code === 0)
    throw wrong(`no benchmark's file lies in ${resolve(data)}`, 'see docs/evaluation.md')
  report(options.report, all, options.model)
  return code
}

/** The benchmark's files in a directory, or why it cannot be evaluated on. */
function filesOf(
  { files, second, name }: Benchmark,
  directory: string,
  { judge }: EvalOptions,
): { readonly data: string; readonly answers?: string } | string {
  const lying = (names: readonly string[]) => names.map(one => join(directory, one)).find(existsSync)
  const data = lying(files)
  if (data === undefined) return `no ${files.join(' or ')}`
  const answers = second === undefined ? undefined : lying(second.files)
  if (second?.required && answers === undefined) return `no ${second.files.join(' or ')} (${second.what})`
  if (name === 'arena-hard' && judge === undefined) return 'no --judge'
  return { data, ...(answers === undefined ? {} : { answers }) }
}

function report(file: string | undefined, all: readonly Evaluated[], model = ''): void {
  if (file !== undefined && all.length > 0) writeReport(file, all, model)
}

const modelOf = ({ recipe }: RunStarted): string | undefined => {
  const { model } = resolveConfig(recipeSchema, { what: 'the run', recipe }).value
  return model.from === 'directory' ? model.path : undefined
}
