/**
 * Makes a recipe of a benchmark. The recipe only evaluates: a model answers each problem K times (`samples`), and each
 * answer is judged.
 *
 * in   the user's files, in the form in which the benchmark is published
 * out  a recipe whose tasks are the problems
 */
import { readFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { z } from 'zod'
import { defineRecipe, type Recipe } from '../../config'
import type { ChatMessage } from '../../messages/facts'
import { taskId } from '../../messages/ids'
import { asError, TroupeError } from '../../runtime/errors'
import { parseConfig } from '../../runtime/settings/resolveConfig'
import { pythonTool } from '../../sandbox/tools/pythonTool'
import type { Benchmark } from './benchmark'
import type { Problems } from './problem'

export { type Benchmark, benchmarks } from './benchmark'
export { instructionLevel } from './ifeval'

const dataSchema = z.strictObject({
  /** Path of the problems, as the benchmark is published: JSONL or a JSON array; CSV for gpqa. */
  file: z.string(),
  /** Path of the second file. bfcl: possible answers. arena-hard: the baseline's answers. */
  answers: z.string().optional(),
  /** Path of a Python file with the functions that bfcl's executable categories call. */
  functions: z.string().optional(),
  /** Server and model of arena-hard's judge (judgeSchema). */
  judge: z.unknown().optional(),
  /** System message, except for problems with messages of their own (bfcl); an empty text means no system message. */
  system: z.string(),
  /** Text that precedes the question, except for problems with messages of their own (bfcl). */
  prefix: z.string(),
})

export function benchmarkRecipe(benchmark: Benchmark): Recipe {
  const { samples, temperature, turns, usesTool, reward, rewards, rewardTimeoutMs } = benchmark
  return defineRecipe({
    config: {
      name: `eval-${benchmark.name}`,
      model: { from: 'directory', path: '', template: join(__dirname, '../templates/hermes.jinja') },
      data: { file: '', system: benchmark.system, prefix: '' },
      engine: { kvTokens: 65_536 },
      limits: { contextTokens: 32_768, responseTokens: 30_000, turns },
      evaluation: { samples, temperature },
      reward: { name: reward, ...(rewardTimeoutMs === undefined ? {} : { timeoutMs: rewardTimeoutMs }) },
      train: { steps: 0 },
    },
    tools: usesTool ? [pythonTool] : [],
    ...(rewards === undefined ? {} : { rewards }),
    async tasks(config) {
      const what = `data of the evaluation ${benchmark.name}`
      const { file, answers, functions, system, prefix } = parseConfig(dataSchema, config.data, what)
      const more = { ...(answers === undefined ? {} : { answers }), ...(functions === undefined ? {} : { functions }) }
      const { problems, dropped } = await readProblems(benchmark, file, { ...more, seed: config.seed })
      return {
        train() {
          throw new Error(`the recipe eval-${benchmark.name} has no training tasks: it can only evaluate`)
        },
        evaluation(index) {
          const { id, question, truth, messages, metadata } = problems[index]!
          const asked = { role: 'user', content: `${prefix}${question}` } as const
          const own: ChatMessage[] = system === '' ? [asked] : [{ role: 'system', content: system }, asked]
          const task = { id: taskId(`${benchmark.name}/${id}`), messages: messages ?? own, truth, reward: '' }
          return metadata === undefined ? task : { ...task, metadata }
        },
        dropped,
      }
    },
  })
}

/**
 * Reads the problems of a file.
 * @throws TroupeError config.no_data if a file cannot be read, a required second file is missing, or the file holds no
 * problem; config.bad_data, with the line, for an id that is missing or occurs twice, or for damaged CSV
 */
export async function readProblems(
  benchmark: Benchmark,
  file: string,
  more: { readonly answers?: string; readonly functions?: string; readonly seed?: number } = {},
): Promise<Problems> {
  const { second } = benchmark
  if (second?.required && more.answers === undefined) {
    throw noData(`${benchmark.title} needs a second file with ${second.what}`, 'give the second file as --answers FILE')
  }
  const path = resolve(file)
  const text = await textOf(path, '--data FILE')
  const answers = more.answers === undefined ? undefined : await textOf(resolve(more.answers), '--answers FILE')
  if (more.functions !== undefined) await textOf(resolve(more.functions), '--set data.functions=FILE')
  const given = {
    ...{ text, seed: more.seed ?? 1 },
    ...(answers === undefined ? {} : { answers }),
    ...(more.functions === undefined ? {} : { functionsFile: resolve(more.functions) }),
  }
  const read = named(more.answers === undefined ? path : `${path} with ${resolve(more.answers)}`, () =>
    benchmark.read(given),
  )
  if (read.problems.length > 0) return read
  const why = Object.entries(read.dropped).map(([reason, n]) => `${n} ${reason}`)
  throw noData(
    `${path} holds no problem of ${benchmark.title}${why.length === 0 ? '' : `; rows left out: ${why.join(', ')}`}`,
    `rows must be ${benchmark.form}`,
  )
}

/** Adds the names of the files to the error about a row, which itself names only the row's line. */
function named<T>(files: string, act: () => T): T {
  try {
    return act()
  } catch (thrown) {
    if (!(thrown instanceof TroupeError) || thrown.code !== 'config.bad_data') throw thrown
    const { code, message, hint = '', cause } = thrown
    throw new TroupeError(code, {
      ...{ boundary: 'config', retriable: false, hint, cause },
      message: `${files}: ${message}`,
    })
  }
}

const textOf = (path: string, option: string) =>
  readFile(path, 'utf8').catch(thrown => {
    throw noData(`${path} cannot be read: ${asError(thrown).message}`, `give a readable file: ${option}`)
  })

const noData = (message: string, hint: string) =>
  new TroupeError('config.no_data', { boundary: 'config', retriable: false, message, hint })
