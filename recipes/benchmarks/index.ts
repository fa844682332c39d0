/**
 * Benchmarks: recipes that only evaluate. A model answers each problem K times with the tool, and is graded.
 *
 * The protocol is the paper's (arXiv 2508.20722 §5.1): 30K tokens, at most 30 turns, temperature 0.6, pass@1 as the mean
 * of 16. The problems are the user's file, in the form in which the benchmark is published.
 */
import { readFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { z } from 'zod'
import { taskId } from '../../messages/ids'
import { parseConfig } from '../../runtime/config'
import { asError, TroupeError } from '../../runtime/errors'
import { defineRecipe, type Recipe } from '../../runtime/recipe'
import { pythonTool } from '../../sandbox/pythonTool'
import { type Problems, parseProblems, type RowFormat } from './rows'

export interface Benchmark extends RowFormat {
  readonly name: string
  readonly title: string
  /** K of the paper's protocol. */
  readonly samples: number
  /** Accuracy and mean response tokens that the paper prints, by model (Table 2; §5.2). */
  readonly printed: readonly { readonly model: string; readonly accuracy: number; readonly tokens?: number }[]
}

const contest = { question: ['problem', 'question'], answer: ['answer'] } as const

export const benchmarks: ReadonlyMap<string, Benchmark> = new Map(
  [
    {
      ...{ name: 'aime24', title: 'AIME 2024', ...contest, truth: 'integer' as const, samples: 16 },
      printed: [
        { model: 'rStar2-Agent-14B', accuracy: 80.6, tokens: 9339.7 },
        { model: 'Qwen3-14B', accuracy: 79.3, tokens: 14_747.6 },
        { model: 'DeepSeek-R1', accuracy: 79.8 },
        { model: 'QwQ-32B', accuracy: 79.5, tokens: 11_868.4 },
        { model: 'o3-mini (medium)', accuracy: 79.6 },
      ],
    },
    {
      ...{ name: 'aime25', title: 'AIME 2025', ...contest, truth: 'integer' as const, samples: 16 },
      printed: [
        { model: 'rStar2-Agent-14B', accuracy: 69.8, tokens: 10_943.4 },
        { model: 'Qwen3-14B', accuracy: 70.4, tokens: 17_521.9 },
        { model: 'DeepSeek-R1', accuracy: 70.0 },
        { model: 'QwQ-32B', accuracy: 65.8, tokens: 15_865.4 },
        { model: 'o3-mini (medium)', accuracy: 77.0 },
      ],
    },
    {
      ...{ name: 'hmmt25', title: 'HMMT February 2025', ...contest, truth: 'text' as const, samples: 16 },
      printed: [
        { model: 'rStar2-Agent-14B', accuracy: 52.7 },
        { model: 'Qwen3-14B', accuracy: 48.9 },
        { model: 'DeepSeek-R1', accuracy: 44.4 },
        { model: 'QwQ-32B', accuracy: 47.5 },
        { model: 'o3-mini (medium)', accuracy: 53.0 },
      ],
    },
    {
      ...{ name: 'math500', title: 'MATH-500', ...contest, truth: 'text' as const, samples: 16 },
      printed: [
        { model: 'rStar2-Agent-14B', accuracy: 97.8 },
        { model: 'Qwen3-14B', accuracy: 96.8 },
        { model: 'DeepSeek-R1', accuracy: 97.3 },
        { model: 'QwQ-32B', accuracy: 98.0 },
        { model: 'o3-mini (medium)', accuracy: 98.0 },
      ],
    },
    {
      ...{ name: 'gsm8k', title: 'GSM8K', question: ['question'], answer: ['answer'], truth: 'worked' as const },
      ...{ samples: 1, printed: [] },
    },
  ].map(benchmark => [benchmark.name, benchmark]),
)

const dataSchema = z.strictObject({
  /** JSONL, or a JSON array. */
  file: z.string(),
  system: z.string(),
  /** Goes before every problem. */
  prefix: z.string(),
})

/** What a model is told that was not trained on a prompt of its own. */
const system = [
  `Solve the problem. Reason step by step, and calculate with ${pythonTool.name}: its output comes back to you.`,
  'When you are sure, end with <answer>\\boxed{RESULT}</answer>.',
].join(' ')

export function benchmarkRecipe(benchmark: Benchmark): Recipe {
  return defineRecipe({
    config: {
      name: `eval-${benchmark.name}`,
      model: { from: 'directory', path: '', template: join(__dirname, '../templates/hermes.jinja') },
      data: { file: '', system, prefix: '' },
      engine: { kvTokens: 65_536 },
      limits: { contextTokens: 32_768, responseTokens: 30_000, turns: 30 },
      evaluation: { samples: benchmark.samples, temperature: 0.6 },
      train: { steps: 0 },
    },
    tools: [pythonTool],
    async tasks(config) {
      const { file, system, prefix } = parseConfig(dataSchema, config.data, `data of the evaluation ${benchmark.name}`)
      const { problems, dropped } = await readProblems(benchmark, file)
      return {
        train() {
          throw new Error('an evaluation trains on nothing')
        },
        evaluation(index) {
          const { id, question, truth } = problems[index]!
          const asked = { role: 'user', content: `${prefix}${question}` } as const
          const told = system === '' ? [] : [{ role: 'system', content: system } as const]
          return { id: taskId(`${benchmark.name}/${id}`), messages: [...told, asked], truth, reward: 'math' }
        },
        dropped,
      }
    },
  })
}

/** Throws TroupeError config.no_data where the file cannot be read, or holds no problem. */
export async function readProblems(benchmark: Benchmark, file: string): Promise<Problems> {
  const path = resolve(file)
  const text = await readFile(path, 'utf8').catch(thrown => {
    throw noData(`${path} cannot be read: ${asError(thrown).message}`, 'give a file that is there: --data FILE')
  })
  const read = parseProblems(text, benchmark)
  if (read.problems.length > 0) return read
  const why = Object.entries(read.dropped).map(([reason, n]) => `${n} ${reason}`)
  const form = `{"${benchmark.question[0]}": …, "${benchmark.answer[0]}": …}`
  throw noData(
    `${path} holds no problem of ${benchmark.title}${why.length === 0 ? '' : `: ${why}`}`,
    `rows are ${form}`,
  )
}

const noData = (message: string, hint: string) =>
  new TroupeError('config.no_data', { boundary: 'config', retriable: false, message, hint })
