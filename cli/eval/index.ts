/**
 * `troupe eval NAME`: a model answers a benchmark's problems with the tool, K times each, through the same actors as training.
 * stdout: with --json a line with the result and a summary, else the result beside the paper's table; stderr: progress.
 * A run like others: it can be resumed after a crash, and `replay` shows its trajectories.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { type Command, InvalidArgumentError } from 'commander'
import { closest } from 'fastest-levenshtein'
import type { EvaluationCompleted } from '../../messages/facts'
import { type Benchmark, benchmarks, readProblems } from '../../recipes/benchmarks'
import { TroupeError } from '../../runtime/errors'
import { withBus } from '../runContext'
import { train } from '../train'
import { wholeNumber } from '../wholeNumber'
import { reportOf } from './report'
import { evalView } from './view'

interface EvalOptions {
  readonly bus: string
  readonly set: readonly string[]
  readonly engine?: readonly string[]
  readonly data?: string
  readonly model?: string
  readonly samples?: number
  readonly temperature?: number
  readonly maxTokens?: number
  readonly turns?: number
  readonly limit?: number
  readonly system?: string
  readonly prefix?: string
  readonly report?: string
  readonly json?: boolean
  readonly run?: string
  readonly resume?: string
  readonly acceptCode?: boolean
}

/** What the engine may hold of KV by default, in tokens: the recipe's default where a context is not longer. */
const kvTokens = 65_536
/** Room for the problem, the system message and the tools. */
const promptTokens = 2048

export function registerEval(program: Command): void {
  const names = [...benchmarks.keys()].join(', ')
  const command = program
    .command('eval <name>')
    .description(`evaluate a model on a benchmark: ${names}`)
    .option('--data <file>', 'the problems: JSONL or a JSON array, as the benchmark is published')
    .option('--model <dir>', 'a directory that transformers loads')
    .option('--samples <k>', "answers to each problem (default: the paper's 16; gsm8k 1)", wholeNumber(1, 1024))
    .option('--temperature <t>', 'default 0.6', temperature)
    .option(
      '--max-tokens <n>',
      'of an answer, tools aside (default 30000, or what fits the model)',
      wholeNumber(1, 2 ** 24),
    )
    .option('--turns <n>', 'default 30', wholeNumber(1, 10_000))
    .option('--limit <n>', 'only the first problems', wholeNumber(1, 2 ** 31))
    .option('--system <text>', 'system message, or @FILE, for a model that was trained on one of its own; empty: none')
    .option('--prefix <text>', 'text before every problem, or @FILE')
    .option('--report <file>', 'write the result as Markdown too')
    .option('--engine <address>', 'local, vllm:URL, sglang:URL or openai:URL; may be given many times', gather, [])
    .option('--set <path=value>', 'override a field of the recipe; may be given many times', gather, [])
    .option('--json', 'a JSON line with the result, last a summary')
    .option('--run <id>', 'name of the run (default: benchmark and time)')
    .option('--resume <id>', 'go on with an evaluation, from the turns it was at')
    .option('--accept-code', 'resume a run that other code started')
  withBus(command).action(async (name: string, options: EvalOptions) => {
    process.exitCode = await evaluate(name, options)
  })
}

const gather = (value: string, before: readonly string[]) => [...before, value]

async function evaluate(name: string, options: EvalOptions): Promise<number> {
  const benchmark = benchmarks.get(name)
  if (benchmark === undefined) {
    const hint = `benchmarks: ${[...benchmarks.keys()].join(', ')}; did you mean '${closest(name, [...benchmarks.keys()])}'?`
    throw wrong(`there is no benchmark '${name}'`, hint)
  }
  const { bus, json, run, resume, acceptCode, engine } = options
  const set = resume === undefined ? [...(await fieldsOf(benchmark, options)), ...options.set] : options.set
  let result: EvaluationCompleted | undefined
  const given = { bus, json, run, resume, acceptCode, engine }
  const code = await train(`eval-${name}`, {
    ...(Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as {
      readonly bus: string
    }),
    set,
    learns: false,
    view: how =>
      evalView(benchmark, how, fact => {
        result = fact
      }),
  })
  if (result !== undefined && options.report !== undefined) writeFileSync(options.report, reportOf(benchmark, result))
  return code
}

/** What the options say about the recipe. */
async function fieldsOf(benchmark: Benchmark, options: EvalOptions): Promise<string[]> {
  const { data, model, samples, limit, turns } = options
  if (data === undefined) throw wrong(`${benchmark.title} needs its problems`, 'give --data FILE')
  if (model === undefined) throw wrong('no model', 'give --model DIR; `troupe setup smollm2` makes a small one')
  const { problems, dropped } = await readProblems(benchmark, data)
  for (const [reason, n] of Object.entries(dropped)) process.stderr.write(`left out: ${n} rows: ${reason}\n`)
  const positions = Math.min(32_768, positionsOf(model))
  const responseTokens = options.maxTokens ?? Math.min(30_000, positions)
  const contextTokens = Math.min(positions, promptTokens + responseTokens)
  const fields = {
    'model.path': resolve(model),
    'data.file': resolve(data),
    'evaluation.problems': Math.min(problems.length, limit ?? problems.length),
    'evaluation.samples': samples,
    'evaluation.temperature': options.temperature,
    'limits.contextTokens': contextTokens,
    'limits.responseTokens': responseTokens,
    'limits.turns': turns,
    'engine.kvTokens': Math.max(kvTokens, contextTokens),
    // The local engine keeps room for a whole context for each.
    'engine.maxSequences': Math.max(1, Math.min(64, Math.floor(kvTokens / contextTokens))),
    'data.system': options.system === undefined ? undefined : textOf(options.system),
    'data.prefix': options.prefix === undefined ? undefined : textOf(options.prefix),
  }
  return Object.entries(fields).flatMap(([path, value]) =>
    value === undefined ? [] : [`${path}=${JSON.stringify(value)}`],
  )
}

/** Longest context of the model, in tokens. */
function positionsOf(model: string): number {
  const path = join(resolve(model), 'config.json')
  if (!existsSync(path))
    throw wrong(`${resolve(model)} holds no config.json`, 'give a directory that transformers loads')
  const { max_position_embeddings: positions } = JSON.parse(readFileSync(path, 'utf8')) as Record<string, unknown>
  return typeof positions === 'number' && positions > 0 ? positions : 32_768
}

function textOf(given: string): string {
  if (!given.startsWith('@')) return given
  if (!existsSync(given.slice(1))) throw wrong(`there is no file ${resolve(given.slice(1))}`, 'give @FILE, or the text')
  return readFileSync(given.slice(1), 'utf8')
}

function temperature(text: string): number {
  const value = Number(text)
  if (text.trim() !== '' && Number.isFinite(value) && value >= 0) return value
  throw new InvalidArgumentError('It must be a number from 0.')
}

const wrong = (message: string, hint: string) =>
  new TroupeError('cli.wrong_usage', { boundary: 'cli', retriable: false, message, hint })
