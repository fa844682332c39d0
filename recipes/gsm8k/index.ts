/**
 * gsm8k: SmolLM2-135M-Instruct learns to answer grade-school problems (arXiv 2110.14168) with Python, on two cores.
 *
 * Cold start on a few hundred demonstrations made from the calculator notes, then GRPO-RoC with 2G = 16 → G = 8.
 * The data are the user's: a file of rows `{"question": …, "answer": …}`, the answer ending in `#### N`.
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

/** Instead of the tool's schema, which takes 250 tokens of every prompt: the cold start teaches the rest. */
const system = `Calculate with ${pythonTool.name}. Then answer as <answer>\\boxed{N}</answer>.`

const dataSchema = z.strictObject({
  /** JSONL. */
  file: z.string().optional(),
  /** JSONL of rows to evaluate on; without, a tenth of `file` is set aside. */
  evaluationFile: z.string().optional(),
  maxNotes: z.number().int().positive().nullable().default(null),
})

/** A file of which a larger share cannot be used is not what it is taken for. */
const largestBadShare = 0.2

export const gsm8k = defineRecipe({
  config: {
    name: 'gsm8k',
    seed: 1,
    model: {
      from: 'directory',
      path: '.troupe/models/smollm2-135m-instruct',
      template: join(__dirname, '../templates/hermes.jinja'),
    },
    // Rows with more notes are hardly ever solved by this model: their groups have nothing but zeros, and no gradient.
    data: { maxNotes: 2 },
    engine: { kvTokens: 16_384, maxSequences: 32 },
    limits: { contextTokens: 512, responseTokens: 320, turns: 4, callsPerTurn: 1, toolResponseChars: 300 },
    tools: { inPrompt: false },
    // This model solves few problems. At temperature 1, 2 % of rollouts were right and 3 of 24 groups of 8 were mixed; at 0.6,
    // 8 of 19 groups of 16 were. Up to 16 are asked for where a step needs 4.
    rollout: { groupSize: 16, groupsPerStep: 4, sampling: { temperature: 0.6 } },
    selection: { keep: 8, refillShare: 3 },
    coldStart: { demonstrations: 256, learningRate: 1e-4, epochs: 1, batchSequences: 8 },
    // A checkpoint with its optimizer takes 1.6 GB.
    train: { steps: 20, learningRate: 5e-6, microBatchTokens: 4096, checkpointEvery: 10 },
    evaluation: { problems: 32, samples: 1 },
  },
  tools: [pythonTool],
  data: dataSchema,
  async tasks(config) {
    const { train, evaluation, dropped } = await load(config)
    const { problems } = config.evaluation
    if (train.length === 0) throw noData('no row is left to train on', said(dropped))
    if (evaluation.length < problems) {
      throw noData(
        `evaluation.problems asks for ${problems} rows, ${evaluation.length} are set aside for it`,
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
    if (demonstrations.length === 0) throw noData('no row gives a demonstration', said(dropped))
    return demonstrations.map(({ messages }) => [{ role: 'system', content: system }, ...messages])
  },
})

async function load(config: RecipeConfig): Promise<Gsm8kPlan> {
  const { file, evaluationFile, maxNotes } = parseConfig(dataSchema, config.data, 'data of recipe gsm8k')
  if (file === undefined) {
    throw noData(
      'recipe gsm8k needs a file of problems',
      '--set data.file=PATH.jsonl, rows {"question": "…", "answer": "… <<48/2=24>> … #### 24"}, as GSM8K is published',
    )
  }
  const rows = await rowsOf(file)
  const evaluationRows = evaluationFile === undefined ? undefined : await rowsOf(evaluationFile)
  const demonstrations = config.coldStart?.demonstrations ?? 0
  const plan = planOf(rows.rows, evaluationRows?.rows, { seed: config.seed, demonstrations, maxNotes })
  return { ...plan, dropped: { ...plan.dropped, ...rows.dropped, ...prefixed(evaluationRows?.dropped ?? {}) } }
}

async function rowsOf(file: string): Promise<{ rows: readonly Gsm8kRow[]; dropped: Readonly<Record<string, number>> }> {
  const path = resolve(file)
  const text = await readFile(path, 'utf8').catch(thrown => {
    throw noData(`${path} cannot be read: ${asError(thrown).message}`, 'give a file that is there: --set data.file=…')
  })
  const { rows, dropped } = parseGsm8k(text)
  const bad = Object.values(dropped).reduce((sum, n) => sum + n, 0)
  if (rows.length === 0 || bad > largestBadShare * (rows.length + bad)) {
    throw noData(
      `${path}: ${bad} of ${rows.length + bad} rows cannot be used${bad === 0 ? '' : `: ${said(dropped)}`}`,
      'rows are {"question": "…", "answer": "… #### N"}, one a line, N an integer',
    )
  }
  return { rows, dropped }
}

const prefixed = (dropped: Readonly<Record<string, number>>) =>
  Object.fromEntries(Object.entries(dropped).map(([reason, n]) => [`evaluation: ${reason}`, n]))

const said = (dropped: Readonly<Record<string, number>>): string =>
  Object.entries(dropped)
    .map(([reason, n]) => `${n} ${reason}`)
    .join(', ')

const noData = (message: string, hint: string) =>
  new TroupeError('config.no_data', { boundary: 'config', retriable: false, message, hint })
