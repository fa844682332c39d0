/**
 * Makes a recipe from data alone: a file of {problem, answer} and the text around each problem.
 *
 * in   a recipe's config, files as `troupe data` writes them
 * out  a recipe; a YAML file without `extends` uses it
 * Invariant: rows keep their order. The curriculum counts the rows that it used (its cursor), so a resumed run
 * continues in the file after the last of them.
 */
import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { z } from 'zod'
import type { Recipe, RecipeConfig, RecipeInput } from '../../config'
import type { ToolSchema } from '../../config/toolSchema'
import type { ChatMessage, Task } from '../../messages/facts'
import { taskId } from '../../messages/ids'
import { asError, TroupeError } from '../../runtime/errors'
import { parseConfig } from '../../runtime/settings/resolveConfig'
import { pythonTool } from '../../sandbox/tools/pythonTool'
import { mixedDemonstrations, readDemonstrations } from './demonstrations'
import { type ProblemRow, type ProblemRows, parseProblemRows } from './rows'

export const problemsData = z.strictObject({
  /**
   * Path of the problems: JSONL of {problem, answer}, as `troupe data` writes it. `question` and `prompt` are accepted
   * for `problem`, `truth` and `expected_answer` for `answer`.
   */
  file: z.string().optional(),
  /**
   * Path of the evaluation's problems, as JSONL. Default for a recipe that trains: the last `evaluation.problems` rows
   * of `file`, which are then not trained on. A recipe that only evaluates needs it.
   */
  evaluationFile: z.string().optional(),
  /** Path of the cold start's conversations: JSONL of {messages}; not read if `mixture` is set. */
  demonstrationsFile: z.string().optional(),
  /** Several files of conversations, with the number to take from each; the recipe's seed mixes them. */
  mixture: z.array(z.strictObject({ file: z.string(), count: z.number().int().positive().optional() })).optional(),
  /** System message; an empty text means no system message. */
  system: z.string().default(''),
  /** Text before (`prefix`) and after (`suffix`) every problem. */
  prefix: z.string().default(''),
  suffix: z.string().default(''),
  /** Upper bound on the share of unusable rows in a file; a file with more is refused. */
  largestBadShare: z.number().min(0).max(1).default(0.2),
})

type ProblemsData = z.output<typeof problemsData>

/** Makes a recipe whose tasks are the rows of files. `tools`: default is the Python tool. */
export function problemsRecipe(config: RecipeInput, tools: readonly ToolSchema[] = [pythonTool]): Recipe {
  return {
    config,
    tools,
    data: problemsData,
    async tasks(resolved) {
      const data = dataOf(resolved)
      const train = await trainRows(data, resolved)
      const evaluation = await evaluationRows(data, resolved)
      return {
        train: index => taskOf(train.rows[index % train.rows.length]!, 'train', data, resolved),
        evaluation: index => taskOf(evaluation.rows[index]!, 'eval', data, resolved),
        dropped: { ...train.dropped, ...named('evaluation: ', evaluation.dropped) },
        size: train.rows.length,
      }
    },
    async demonstrations(resolved) {
      const data = dataOf(resolved)
      if (data.mixture !== undefined) {
        return mixedDemonstrations(
          data.mixture,
          data.largestBadShare,
          resolved.seed,
          resolved.coldStart?.demonstrations,
        )
      }
      if (data.demonstrationsFile !== undefined) {
        return readDemonstrations(data.demonstrationsFile, data.largestBadShare, resolved.coldStart?.demonstrations)
      }
      if (resolved.coldStart !== undefined) {
        throw noData(
          `recipe '${resolved.name}' has a cold start but names no demonstrations`,
          'name the file with --set data.demonstrationsFile=PATH.jsonl; its rows are {"messages": [{"role": …, "content": …}, …]}',
        )
      }
      return vocabularyOf(data, resolved)
    },
  }
}

/**
 * Reads every file that a recipe of problems names, and lists what is wrong with each: errors that `tasks` and
 * `demonstrations` would throw one at a time, and rows that would be left out.
 */
export async function problemsFaults(recipe: Recipe, config: RecipeConfig) {
  const data = dataOf(config)
  const read = await Promise.allSettled([
    trainRows(data, config),
    evaluationRows(data, config),
    config.coldStart === undefined ? [] : recipe.demonstrations?.(config),
  ])
  const errors = read.flatMap(one => (one.status === 'rejected' ? [asError(one.reason)] : []))
  const files = [data.file, data.evaluationFile]
  const skipped = read.slice(0, 2).flatMap((one, at) => {
    if (one.status === 'rejected' || one.value === undefined || !('firstDropped' in one.value)) return []
    const { firstDropped, dropped } = one.value
    if (firstDropped === undefined) return []
    return [{ file: files[at] ?? '', ...firstDropped, rows: Object.values(dropped).reduce((sum, n) => sum + n, 0) }]
  })
  return { errors, skipped }
}

/**
 * Returns the problems with their answers, as texts for the tokenizer of a model with random weights; empty for other
 * models.
 */
async function vocabularyOf(data: ProblemsData, config: RecipeConfig): Promise<readonly (readonly ChatMessage[])[]> {
  if (config.model.from !== 'random') return []
  const { rows } = await trainRows(data, config)
  return rows.map(row => [
    ...messagesOf(row, data),
    { role: 'assistant', content: `<answer>\\boxed{${row.answer}}</answer>` },
  ])
}

const dataOf = (config: RecipeConfig) => parseConfig(problemsData, config.data, `data of recipe ${config.name}`)

async function trainRows(data: ProblemsData, config: RecipeConfig): Promise<ProblemRows> {
  if (data.file !== undefined) {
    const read = await rowsOf(data.file, data)
    return isHeldOut(data, config) ? { ...read, rows: read.rows.slice(0, -heldOut(read, data.file, config)) } : read
  }
  if (config.train.steps === 0 && data.evaluationFile !== undefined) return { rows: [], dropped: {} }
  throw noData(
    `recipe '${config.name}' names no file of problems`,
    'name the file with --set data.file=PATH.jsonl; its rows are {"problem": …, "answer": …}; `troupe data` makes one from a published set',
  )
}

async function evaluationRows(data: ProblemsData, config: RecipeConfig): Promise<ProblemRows> {
  const { problems } = config.evaluation
  if (problems === 0) return { rows: [], dropped: {} }
  if (data.file !== undefined && isHeldOut(data, config)) {
    const { rows } = await rowsOf(data.file, data)
    return { rows: rows.slice(-heldOut({ rows }, data.file, config)), dropped: {} } // training counts what is dropped
  }
  if (data.evaluationFile === undefined) {
    throw noData(
      `recipe '${config.name}' evaluates on ${problems} problems but names no file of them`,
      'name the file with --set data.evaluationFile=PATH.jsonl, or skip the evaluation with --set evaluation.problems=0',
    )
  }
  const read = await rowsOf(data.evaluationFile, data)
  if (read.rows.length >= problems) return read
  throw noData(
    `evaluation.problems asks for ${problems} problems, but ${resolve(data.evaluationFile)} holds ${read.rows.length}`,
    `lower it with --set evaluation.problems=${read.rows.length}, or give a larger file`,
  )
}

/**
 * True if the evaluation takes rows of `data.file`: the recipe trains, evaluates, and names no file for the evaluation.
 */
const isHeldOut = (data: ProblemsData, { evaluation, train }: RecipeConfig): boolean =>
  data.evaluationFile === undefined && evaluation.problems > 0 && train.steps > 0

/** Number of rows to hold out. @throws TroupeError config.no_data if fewer than half would be left to train on */
function heldOut({ rows }: Pick<ProblemRows, 'rows'>, file: string, { evaluation }: RecipeConfig): number {
  const { problems } = evaluation
  if (problems <= rows.length / 2) return problems
  throw noData(
    `evaluation.problems asks for ${problems} problems, and ${resolve(file)} holds ${rows.length}, of which at most half are held out`,
    `lower it with --set evaluation.problems=${Math.floor(rows.length / 5)}, or name a separate file with --set data.evaluationFile=PATH.jsonl`,
  )
}

/**
 * Reads a file of problems.
 * @throws TroupeError config.no_data if the file cannot be read, has no rows, or has too large a share of unusable rows
 */
async function rowsOf(file: string, { largestBadShare }: ProblemsData): Promise<ProblemRows> {
  const path = resolve(file)
  const text = await readFile(path, 'utf8').catch(thrown => {
    throw noData(`${path} cannot be read: ${asError(thrown).message}`, 'give a readable file')
  })
  const read = parseProblemRows(text)
  const bad = Object.values(read.dropped).reduce((sum, n) => sum + n, 0)
  const all = read.rows.length + bad
  if (read.rows.length > 0 && bad <= largestBadShare * all) return read
  const why = Object.entries(read.dropped).map(([reason, n]) => `${n} ${reason}`)
  const { line, reason } = read.firstDropped ?? {}
  const said =
    bad === 0
      ? `${path}: holds no rows`
      : `${path}:${line}: ${reason}; ${bad} of ${all} rows cannot be used (${why.join(', ')})`
  throw noData(
    said,
    `rows must be {"problem": …, "answer": …}, one per line${read.rows.length > 0 ? `; data.largestBadShare is ${largestBadShare}` : ''}`,
  )
}

function messagesOf(row: ProblemRow, { system, prefix, suffix }: ProblemsData): ChatMessage[] {
  const systemMessages: ChatMessage[] = system === '' ? [] : [{ role: 'system', content: system }]
  return [...systemMessages, { role: 'user', content: `${prefix}${row.problem}${suffix}` }]
}

const taskOf = (
  row: ProblemRow,
  split: 'train' | 'eval',
  data: ProblemsData,
  { name, reward }: RecipeConfig,
): Task => ({
  id: taskId(`${name}/${split}/${row.id}`),
  messages: messagesOf(row, data),
  truth: row.answer,
  reward: reward.name,
  metadata: row.rest,
})

const named = (prefix: string, counts: Readonly<Record<string, number>>) =>
  Object.fromEntries(Object.entries(counts).map(([reason, n]) => [prefix + reason, n]))

const noData = (message: string, hint: string) =>
  new TroupeError('config.no_data', { boundary: 'config', retriable: false, message, hint })
