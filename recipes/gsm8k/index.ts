/**
 * Recipe gsm8k: SmolLM2-135M-Instruct learns to answer grade-school problems (arXiv 2110.14168) with Python, on two CPU
 * cores.
 *
 * in   the user's file of rows `{"question": …, "answer": …}`, each answer ending in `#### N`        out  a recipe
 * First comes a cold start on 256 demonstrations, which are made from the calculator notes in GSM8K's answers
 * (`<<48/2=24>>`); then GRPO-RoC, which trains on 8 of the 16 rollouts of a problem.
 */
import { readFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { z } from 'zod'
import { defineRecipe, type RecipeConfig } from '../../config'
import { asError, TroupeError } from '../../runtime/errors'
import { parseConfig } from '../../runtime/settings/resolveConfig'
import { pythonTool } from '../../sandbox/tools/pythonTool'
import { type Gsm8kRow, parseGsm8k } from './rows'
import { type Gsm8kPlan, planOf, taskOf } from './tasks'

/**
 * System message that replaces the tool's schema in the prompt: the schema would take 250 tokens. The cold start
 * teaches the format of calls.
 */
const system = `Calculate with ${pythonTool.name}. Then answer as <answer>\\boxed{N}</answer>.`

const dataSchema = z.strictObject({
  /** Path of the problems, as JSONL. Required. */
  file: z.string().optional(),
  /** Path of the evaluation's rows, as JSONL. Default: about a tenth of the questions in `file` is set aside. */
  evaluationFile: z.string().optional(),
  /** Upper bound on the calculator notes of a row; rows with more are left out. null: no bound. */
  maxNotes: z.number().int().positive().nullable().default(null),
})

/** Upper bound on the share of unusable rows in a file. A file with more is refused: it is probably not GSM8K. */
const maxBadShare = 0.2

export const gsm8k = defineRecipe({
  config: {
    name: 'gsm8k',
    seed: 1,
    model: {
      from: 'directory',
      path: '.troupe/models/smollm2-135m-instruct',
      template: join(__dirname, '../templates/hermes.jinja'),
    },
    // SmolLM2 hardly ever solves rows with more than 2 notes: all rewards of their groups are 0, so no gradient.
    data: { maxNotes: 2 },
    engine: { kvTokens: 16_384, maxSequences: 32 },
    limits: { contextTokens: 512, responseTokens: 320, turns: 4, callsPerTurn: 1, toolResponseChars: 300 },
    tools: { inPrompt: false },
    // SmolLM2 solves few problems. At temperature 1, 2 % of rollouts were right, and 3 of 24 groups of 8 were mixed
    // (had right and wrong rollouts); at 0.6, 8 of 19 groups of 16 were mixed. A step needs 4 mixed groups and asks for
    // up to 16.
    rollout: { groupSize: 16, groupsPerStep: 4, sampling: { temperature: 0.6 } },
    selection: { keep: 8, refillShare: 3 },
    coldStart: { demonstrations: 256, learningRate: 1e-4, epochs: 1, batchSequences: 8 },
    // Checkpoints only every 10 steps, because one with its optimizer takes 1.6 GB.
    train: { steps: 20, learningRate: 5e-6, microBatchTokens: 4096, checkpointEvery: 10 },
    evaluation: { problems: 32, samples: 1 },
  },
  tools: [pythonTool],
  data: dataSchema,
  async tasks(config) {
    const { train, evaluation, dropped } = await load(config)
    const { problems } = config.evaluation
    if (train.length === 0)
      throw noData(
        `recipe gsm8k has no row left to train on; rows left out: ${listed(dropped) || 'none'}`,
        'give more rows: --set data.file=PATH.jsonl',
      )
    if (evaluation.length < problems) {
      throw noData(
        `evaluation.problems asks for ${problems} rows, but there are only ${evaluation.length} to evaluate on`,
        'give more rows, --set data.evaluationFile=PATH, or a smaller evaluation.problems',
      )
    }
    return {
      train: index => taskOf(train[index % train.length]!, 'train', system),
      evaluation: index => taskOf(evaluation[index]!, 'eval', system),
      dropped,
    }
  },
  async demonstrations(config) {
    if (config.coldStart === undefined) return []
    const { demonstrations, dropped } = await load(config)
    if (demonstrations.length === 0)
      throw noData(
        'recipe gsm8k cannot make a cold-start demonstration from any row: a row needs correct calculator notes, such as <<48/2=24>>',
        `rows left out: ${listed(dropped)}`,
      )
    return demonstrations.map(({ messages }) => [{ role: 'system', content: system }, ...messages])
  },
})

async function load(config: RecipeConfig): Promise<Gsm8kPlan> {
  const { file, evaluationFile, maxNotes } = parseConfig(dataSchema, config.data, 'data of recipe gsm8k')
  if (file === undefined) {
    throw noData(
      'recipe gsm8k needs a file of problems',
      'name the file with --set data.file=PATH.jsonl; its rows are {"question": "…", "answer": "… <<48/2=24>> … #### 24"}, as GSM8K is published',
    )
  }
  const rows = await rowsOf(file, 'data.file')
  const evaluationRows = evaluationFile === undefined ? undefined : await rowsOf(evaluationFile, 'data.evaluationFile')
  const demonstrations = config.coldStart?.demonstrations ?? 0
  const plan = planOf(rows.rows, evaluationRows?.rows, { seed: config.seed, demonstrations, maxNotes })
  return { ...plan, dropped: { ...plan.dropped, ...rows.dropped, ...prefixed(evaluationRows?.dropped ?? {}) } }
}

async function rowsOf(
  file: string,
  field: string,
): Promise<{ rows: readonly Gsm8kRow[]; dropped: Readonly<Record<string, number>> }> {
  const path = resolve(file)
  const text = await readFile(path, 'utf8').catch(thrown => {
    throw noData(`${path} cannot be read: ${asError(thrown).message}`, `give a readable file: --set ${field}=PATH`)
  })
  const { rows, dropped } = parseGsm8k(text)
  const bad = Object.values(dropped).reduce((sum, n) => sum + n, 0)
  if (rows.length === 0 || bad > maxBadShare * (rows.length + bad)) {
    throw noData(
      `${path}: ${bad} of ${rows.length + bad} rows cannot be used${bad === 0 ? '' : `: ${listed(dropped)}`}`,
      'rows must be {"question": "…", "answer": "… #### N"}, one per line, N an integer',
    )
  }
  return { rows, dropped }
}

const prefixed = (dropped: Readonly<Record<string, number>>) =>
  Object.fromEntries(Object.entries(dropped).map(([reason, n]) => [`evaluation: ${reason}`, n]))

const listed = (dropped: Readonly<Record<string, number>>): string =>
  Object.entries(dropped)
    .map(([reason, n]) => `${n} ${reason}`)
    .join(', ')

const noData = (message: string, hint: string) =>
  new TroupeError('config.no_data', { boundary: 'config', retriable: false, message, hint })
