/**
 * problems: the tasks of a recipe that is nothing but data. A file of {problem, answer}, and what goes before each.
 *
 * What a YAML file that extends nothing is built on, and what `troupe data` writes. Rows keep their order: the curriculum's
 * cursor names a row for ever, so a run that is resumed goes on in the file where it was.
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
  /** JSONL of {problem, answer}; `troupe data` writes one. `question` and `prompt`, `truth` are understood as well. */
  file: z.string().optional(),
  /** Problems to evaluate on. Without, none are: problems of `file` would be trained on. */
  evaluationFile: z.string().optional(),
  /** JSONL of {messages}: conversations for the cold start. */
  demonstrationsFile: z.string().optional(),
  /** Several of them, with how many of each; they are mixed by the recipe's seed. */
  mixture: z.array(z.strictObject({ file: z.string(), count: z.number().int().positive().optional() })).optional(),
  /** A system message. */
  system: z.string().default(''),
  /** Go before and after every problem. */
  prefix: z.string().default(''),
  suffix: z.string().default(''),
  /** A file of which a larger share of rows cannot be used is refused. */
  largestBadShare: z.number().min(0).max(1).default(0.2),
})

type ProblemsData = z.output<typeof problemsData>

/** Says how to answer where the recipe's reward looks for `<answer>\boxed{…}</answer>`. */
export const answerInstruction = 'End with <answer>\\boxed{RESULT}</answer>.'

/** A recipe whose tasks are rows of files. `tools`: default Python. */
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
          `recipe '${resolved.name}' has a cold start and no demonstrations`,
          '--set data.demonstrationsFile=PATH.jsonl, rows {"messages": [{"role": …, "content": …}, …]}',
        )
      }
      return vocabularyOf(data, resolved)
    },
  }
}

/** Without a cold start, demonstrations only serve to make the tokenizer of a model with random weights. */
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
  if (data.file !== undefined) return rowsOf(data.file, data)
  if (config.train.steps === 0 && data.evaluationFile !== undefined) return { rows: [], dropped: {} }
  throw noData(
    `recipe '${config.name}' names no file of problems`,
    '--set data.file=PATH.jsonl, rows {"problem": …, "answer": …}; `troupe data` makes one of a published set',
  )
}

async function evaluationRows(data: ProblemsData, config: RecipeConfig): Promise<ProblemRows> {
  const { problems } = config.evaluation
  if (problems === 0) return { rows: [], dropped: {} }
  if (data.evaluationFile === undefined) {
    throw noData(
      `recipe '${config.name}' evaluates on ${problems} problems and names no file of them`,
      '--set data.evaluationFile=PATH.jsonl, or --set evaluation.problems=0',
    )
  }
  const read = await rowsOf(data.evaluationFile, data)
  if (read.rows.length >= problems) return read
  throw noData(
    `evaluation.problems asks for ${problems}, ${resolve(data.evaluationFile)} holds ${read.rows.length} problems`,
    `--set evaluation.problems=${read.rows.length}, or give a larger file`,
  )
}

/** @throws TroupeError config.no_data: the file cannot be read, holds nothing, or too large a share of it is broken */
async function rowsOf(file: string, { largestBadShare }: ProblemsData): Promise<ProblemRows> {
  const path = resolve(file)
  const text = await readFile(path, 'utf8').catch(thrown => {
    throw noData(`${path} cannot be read: ${asError(thrown).message}`, 'give a file that is there')
  })
  const read = parseProblemRows(text)
  const bad = Object.values(read.dropped).reduce((sum, n) => sum + n, 0)
  const all = read.rows.length + bad
  if (read.rows.length > 0 && bad <= largestBadShare * all) return read
  const why = Object.entries(read.dropped).map(([reason, n]) => `${n} ${reason}`)
  const said = bad === 0 ? 'holds no rows' : `${bad} of ${all} rows cannot be used (${why.join(', ')})`
  throw noData(
    `${path}: ${said}`,
    `rows are {"problem": …, "answer": …}, one a line${read.rows.length > 0 ? `; data.largestBadShare is ${largestBadShare}` : ''}`,
  )
}

function messagesOf(row: ProblemRow, { system, prefix, suffix }: ProblemsData): ChatMessage[] {
  const told: ChatMessage[] = system === '' ? [] : [{ role: 'system', content: system }]
  return [...told, { role: 'user', content: `${prefix}${row.problem}${suffix}` }]
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
