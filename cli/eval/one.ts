/**
 * Runs one evaluation: builds the recipe's fields from the options, runs it, and reads the details from the log.
 *
 * in   a benchmark, options        out  its result, and the exit code
 */
import { existsSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { positionsIn } from '../../actors/run/model'
import { recipeSchema } from '../../config'
import type { EvaluationCompleted } from '../../messages/facts'
import { type Benchmark, readProblems } from '../../recipes/benchmarks'
import { isWhole } from '../../replay/learning/evaluationScore'
import { progress, summaryOf } from '../../replay/learning/progress'
import { systemEffects } from '../../runtime/effects'
import { TroupeError } from '../../runtime/errors'
import { openForReading, readingJournal } from '../../runtime/openRun'
import { resolveConfig } from '../../runtime/settings/resolveConfig'
import { placeOptions } from '../options/busOptions'
import { train } from '../train'
import { timestamp } from '../train/runName'
import { detailsOf, type EvaluationDetails } from './details'
import { type RecordedEvaluation, recordedEvaluation } from './recorded'
import { countsOf, type Evaluated, reasonsOf } from './report'
import { evalView } from './view'

export interface EvalOptions {
  readonly bus: string
  readonly set: readonly string[]
  readonly engine?: readonly string[]
  readonly data?: string
  readonly answers?: string
  readonly judge?: string
  readonly judgeModel?: string
  readonly judgeKeyEnv?: string
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

/** Default size of the engine's KV cache, in tokens; a longer context raises it. */
const kvTokens = 65_536
const longestContext = 32_768
/** Tokens of the context that are reserved for the problem, the system message and the tools. */
const promptTokens = 2048

/**
 * Runs or resumes an evaluation; prints the result of one that is over. `before`: the state of the evaluation to
 * resume, read from its log.
 */
export async function evaluateOne(
  benchmark: Benchmark,
  options: EvalOptions,
  before: RecordedEvaluation,
): Promise<Outcome> {
  const { bus, json, resume, acceptCode, engine } = options
  const run = resume ?? options.run ?? `eval-${benchmark.name}-${timestamp()}`
  if (before.state === 'over') return outcomeOf(0, await shown(benchmark, options, run, before))
  const set = resume === undefined ? [...(await fieldsOf(benchmark, options)), ...options.set] : options.set
  let result: EvaluationCompleted | undefined
  const given = { bus, json, resume, acceptCode, engine, ...(resume === undefined ? { run } : {}) }
  const code = await train(`eval-${benchmark.name}`, {
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
  if (result !== undefined) return outcomeOf(code, await withDetails(benchmark, bus, run, result))
  // The log of a run that was killed between its last two facts already has the result.
  const after = await recordedEvaluation(bus, code === 0 ? resume : undefined)
  return outcomeOf(code, after.state === 'over' ? await shown(benchmark, options, run, after) : undefined)
}

interface Outcome {
  readonly code: number
  readonly evaluated: Evaluated | undefined
}

/**
 * Raises the exit code to at least 1 and prints a message when problems lack a judged answer: that score is not the
 * benchmark's.
 */
function outcomeOf(code: number, evaluated: Evaluated | undefined): Outcome {
  if (evaluated === undefined || isWhole(evaluated.result)) return { code, evaluated }
  const { n, asked } = evaluated.result
  const title = evaluated.benchmark.title
  process.stderr.write(
    `${title}: only ${n} of ${asked?.problems} problems have a judged answer; the score is not the benchmark's\n`,
  )
  return { code: Math.max(code, 1), evaluated }
}

/** Prints the result of an evaluation that is already over, without starting an engine. */
async function shown(
  benchmark: Benchmark,
  { bus, json = false }: EvalOptions,
  run: string,
  { started, result, end }: Extract<RecordedEvaluation, { state: 'over' }>,
): Promise<Evaluated> {
  const config = resolveConfig(recipeSchema, { what: `run ${run}`, recipe: started.recipe }).value
  const state = progress(config.selection)
  state.take(result)
  const view = evalView(benchmark, { json, config, run, fx: systemEffects, place: placeOptions({ bus }) }, () => {})
  view.evaluation(result)
  view.over(summaryOf(state, run, end.outcome, end.reason, (end.at - started.at) / 1000))
  return withDetails(benchmark, bus, run, result)
}

async function withDetails(
  benchmark: Benchmark,
  bus: string,
  run: string,
  result: EvaluationCompleted,
): Promise<Evaluated> {
  const details = await detailsIn(bus, run)
  const reasons = reasonsOf(details?.unjudged)
  if (reasons !== '') process.stderr.write(`answers without a reward, by reason:${reasons}\n`)
  const how = countsOf(details?.how ?? {})
  if (how !== '') process.stderr.write(`how answers were judged: ${how}\n`)
  return { benchmark, result, run, ...(details === undefined ? {} : { details }) }
}

/** Reads the details from the log; undefined on a bus in memory, whose log is gone after the run. */
async function detailsIn(bus: string, run: string): Promise<EvaluationDetails | undefined> {
  if (bus.startsWith('memory:')) return undefined
  const opened = await openForReading(bus, run)
  try {
    return await detailsOf(readingJournal(opened))
  } finally {
    await opened.bus.close()
  }
}

/** Recipe fields that the command line's options set, as `path=value`. */
export async function fieldsOf(benchmark: Benchmark, options: EvalOptions): Promise<string[]> {
  const { data, model, samples, limit, turns, answers } = options
  if (data === undefined) throw wrong(`${benchmark.title} needs the file of its problems`, 'give it as --data FILE')
  if (model === undefined)
    throw wrong('the evaluation needs a model', 'give --model DIR; `troupe setup smollm2` makes a small one')
  if (benchmark.name === 'arena-hard' && (options.judge === undefined || options.judgeModel === undefined)) {
    throw wrong(
      `${benchmark.title} needs a judge model`,
      'give --judge URL of an OpenAI-compatible server, and --judge-model NAME',
    )
  }
  const functions = options.set.map(one => /^data\.functions=(.+)$/.exec(one)?.[1]).find(one => one !== undefined)
  const { problems, dropped } = await readProblems(benchmark, data, {
    ...(answers === undefined ? {} : { answers }),
    ...(functions === undefined ? {} : { functions }),
  })
  for (const [reason, n] of Object.entries(dropped)) process.stderr.write(`${n} rows dropped: ${reason}\n`)
  const positions = Math.min(longestContext, longestOf(model))
  const responseTokens = options.maxTokens ?? Math.min(30_000, positions)
  const contextTokens = Math.min(positions, promptTokens + responseTokens)
  const judge = options.judge === undefined ? undefined : judgeOf(options)
  const fields = {
    'model.path': resolve(model),
    'data.file': resolve(data),
    'data.answers': answers === undefined ? undefined : resolve(answers),
    'data.judge': judge,
    'evaluation.problems': Math.min(problems.length, limit ?? problems.length),
    'evaluation.samples': samples,
    'evaluation.temperature': options.temperature,
    'limits.contextTokens': contextTokens,
    'limits.responseTokens': responseTokens,
    'limits.turns': turns,
    'engine.kvTokens': Math.max(kvTokens, contextTokens),
    // The local engine reserves room for a whole context for each sequence.
    'engine.maxSequences': Math.max(1, Math.min(64, Math.floor(kvTokens / contextTokens))),
    'data.system': options.system === undefined ? undefined : textOf(options.system),
    'data.prefix': options.prefix === undefined ? undefined : textOf(options.prefix),
  }
  return Object.entries(fields).flatMap(([path, value]) =>
    value === undefined ? [] : [`${path}=${JSON.stringify(value)}`],
  )
}

const judgeOf = ({ judge, judgeModel, judgeKeyEnv }: EvalOptions) => ({
  ...{ url: judge, model: judgeModel },
  ...(judgeKeyEnv === undefined ? {} : { apiKey: { env: judgeKeyEnv } }),
})

/** Longest context that the given model allows, in tokens; `longestContext` if its config does not say. */
function longestOf(model: string): number {
  if (!existsSync(join(resolve(model), 'config.json')))
    throw wrong(
      `${resolve(model)} is not a model directory: it has no config.json`,
      'give --model a directory that transformers can load',
    )
  return positionsIn(model) ?? longestContext
}

function textOf(given: string): string {
  if (!given.startsWith('@')) return given
  if (!existsSync(given.slice(1)))
    throw wrong(
      `the file ${resolve(given.slice(1))} does not exist`,
      'give @FILE with an existing file, or the text itself',
    )
  return readFileSync(given.slice(1), 'utf8')
}

export const wrong = (message: string, hint: string) =>
  new TroupeError('cli.wrong_usage', { boundary: 'cli', retriable: false, message, hint })
