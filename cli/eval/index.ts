/**
 * `troupe eval NAME|all`: has a model answer a benchmark's problems, K times each, through the same actors as training.
 *
 * in   a benchmark, its files, a model
 * out  stdout: the result beside the paper's table, or JSON lines with --json; stderr: progress
 * An evaluation is a run like others: it can be resumed after a crash, and `replay` shows its trajectories. `all` runs
 * every benchmark whose file lies in the given directory, one run each, and names the benchmarks without a file.
 */

import { existsSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { Command } from 'commander'
import { recipeSchema } from '../../config'
import type { RunStarted } from '../../messages/facts'
import { type Benchmark, benchmarks } from '../../recipes/benchmarks'
import { didYouMean } from '../../runtime/settings/nearestName'
import { resolveConfig } from '../../runtime/settings/resolveConfig'
import { withBus } from '../options/busOptions'
import { numberFrom, wholeNumber } from '../options/readers'
import { repeatable } from '../options/repeatable'
import { timestamp } from '../train/runName'
import { type EvalOptions, evaluateOne, fieldsOf, wrong } from './one'
import { recordedEvaluation } from './recorded'
import { type Evaluated, readyReport, writeReport } from './report'
import { refuseChangedRecipe, refuseUnusedOptions } from './resumed'

export function registerEval(program: Command): void {
  const names = [...benchmarks.keys()].join(', ')
  const command = program
    .command('eval <name>')
    .description(`evaluate a model on a benchmark: ${names}; all: on every benchmark with a file in a directory`)
    .option(
      '--data <file>',
      'file with the problems, in the form in which the benchmark is published; with `all`: a directory of such files',
    )
    .option('--answers <file>', "file of the possible answers (bfcl) or of the baseline's answers (arena-hard)")
    .option('--judge <url>', 'arena-hard: base URL of the OpenAI-compatible server that serves the judge model')
    .option('--judge-model <name>', 'arena-hard: name of the judge model on that server')
    .option('--judge-key-env <name>', "arena-hard: environment variable that holds the judge server's API key")
    .option('--model <dir>', 'directory of a model that transformers can load')
    .option('--samples <k>', "number of answers sampled for each problem (default: the paper's)", wholeNumber(1, 1024))
    .option('--temperature <t>', "sampling temperature (default: the paper's)", numberFrom(0))
    .option(
      '--max-tokens <n>',
      'upper bound on the tokens of an answer, tool responses included (default 30000, or what the context allows)',
      wholeNumber(1, 2 ** 24),
    )
    .option(
      '--turns <n>',
      'upper bound on the turns of an answer (default 30; 1 when the benchmark uses no tool)',
      wholeNumber(1, 10_000),
    )
    .option('--limit <n>', 'use the first N problems only', wholeNumber(1, 2 ** 31))
    .option(
      '--system <text>',
      'system message as text or @FILE, for a model that was trained with its own; an empty text sends none',
    )
    .option('--prefix <text>', 'text that is put before every problem, or @FILE')
    .option('--report <file>', 'write the result to this Markdown file, with a JSON file and a picture (SVG) beside it')
    .option(
      '--engine <address>',
      'engine: local, vllm:URL, sglang:URL or openai:URL (repeatable); or recorded:RUN, or simulated:FILE',
      repeatable,
      [],
    )
    .option('--set <path=value>', 'override a field of the recipe (repeatable)', repeatable, [])
    .option('--json', 'print a JSON line with the result, and last a summary')
    .option('--run <id>', 'name of the run (default: benchmark and time)')
    .option('--resume <id>', 'resume an evaluation at the turns where it stopped; with `all`, repeat the other options')
    .option('--accept-code', 'resume a run that another version of the code started')
  withBus(command).action(async (name: string, options: EvalOptions) => {
    process.exitCode = name === 'all' ? await evaluateAll(options) : await evaluate(name, options)
  })
}

async function evaluate(name: string, options: EvalOptions): Promise<number> {
  const benchmark = benchmarks.get(name)
  if (benchmark === undefined) {
    const names = [...benchmarks.keys(), 'all']
    throw wrong(`no benchmark is named '${name}'${didYouMean(name, names)}`, `benchmarks: ${names.join(', ')}`)
  }
  refuseUnusedOptions(options)
  readyReport(options.report)
  const before = await recordedEvaluation(options.bus, options.resume)
  if (before.state !== 'none') refuseChangedRecipe(benchmark, before.started)
  const { code, evaluated } = await evaluateOne(benchmark, options, before)
  const model = options.model ?? (before.state === 'none' ? undefined : modelOf(before.started))
  report(options.report, evaluated === undefined ? [] : [evaluated], model)
  return code
}

async function evaluateAll(options: EvalOptions): Promise<number> {
  const { resume, run = resume ?? `eval-all-${timestamp()}`, ...given } = options
  if (resume !== undefined && run !== resume)
    throw wrong(`--run ${run} and --resume ${resume} name two runs`, 'give one of them')
  const { data } = given
  if (data === undefined || !existsSync(data) || !statSync(data).isDirectory()) {
    throw wrong(
      `\`troupe eval all\` needs a directory with the files of the benchmarks${data === undefined ? '' : `; ${resolve(data)} is none`}`,
      'give it as --data DIR',
    )
  }
  const found = [...benchmarks.values()].map(benchmark => ({ benchmark, files: filesOf(benchmark, data, options) }))
  readyReport(options.report)
  const all: Evaluated[] = []
  let code = 0
  for (const { benchmark, files } of found) {
    if (typeof files === 'string') {
      process.stderr.write(`${benchmark.name}: skipped, ${files}\n`)
      continue
    }
    const name = `${run}-${benchmark.name}`
    const before = await recordedEvaluation(options.bus, resume === undefined ? undefined : name)
    const own = { ...given, ...files }
    if (before.state !== 'none') refuseChangedRecipe(benchmark, before.started, await fieldsOf(benchmark, own), own.set)
    // A benchmark whose run exists is resumed; any other benchmark starts a new run.
    const named = before.state === 'none' ? { run: name } : { resume: name }
    const one = await evaluateOne(benchmark, { ...own, ...named }, before)
    if (one.evaluated !== undefined) all.push(one.evaluated)
    code = Math.max(code, one.code)
    if (one.code >= 128) break // A signal stopped the evaluation.
  }
  if (all.length === 0 && code === 0)
    throw wrong(
      `no benchmark was evaluated with the files of ${resolve(data)}: the lines above say what each lacks`,
      'docs/evaluation.md lists the file names',
    )
  report(options.report, all, options.model)
  return code
}

/** Finds the benchmark's files in a directory. Returns a text with the reason when it cannot be evaluated. */
function filesOf(
  { files, second, name }: Benchmark,
  directory: string,
  { judge }: EvalOptions,
): { readonly data: string; readonly answers?: string } | string {
  const firstExisting = (names: readonly string[]) => names.map(one => join(directory, one)).find(existsSync)
  const data = firstExisting(files)
  if (data === undefined) return `no ${files.join(' or ')}`
  const answers = second === undefined ? undefined : firstExisting(second.files)
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
