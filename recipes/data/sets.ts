/**
 * Declares the problem sets that `troupe data` knows: where they are published, the names of their fields, and their
 * filters.
 *
 * Source of the filters: arXiv 2508.20722 §4.2 (integer answers only; OpenMathReasoning kept where at least 2 of 16
 * sampled answers match; 8-gram decontamination).
 */

export interface HubPlace {
  /** Name of the data set on the hub: owner/name. */
  readonly repo: string
  /** Patterns for the paths of the data set's files, by split. */
  readonly files: Readonly<Record<string, RegExp>>
}

export interface ProblemSet {
  readonly name: string
  readonly title: string
  /** Use of the set: rows of a training set are shuffled by default, rows of an evaluation set keep their order. */
  readonly use: 'training' | 'evaluation'
  readonly hub: HubPlace
  /** Split to use if the user names none. */
  readonly split: string
  /**
   * Names of the problem's field, in order of preference; `answer` has those of the answer's field. A dot leads into an
   * object.
   */
  readonly problem: readonly string[]
  readonly answer: readonly string[]
  /**
   * Form of the answers. integer: rows with other answers are dropped, unless `--no-integer` is given. text: any
   * answer. worked: the answer follows the last `####`.
   */
  readonly answers: 'integer' | 'text' | 'worked'
  /**
   * Lower bound on agreement: keeps a problem if at least `least` of its first `of` sampled answers match the published
   * answer.
   */
  readonly agreement?: { readonly least: number; readonly of: number }
  /**
   * Patterns by field: a row whose field holds text that does not match is dropped; a row without the field is kept.
   */
  readonly only?: Readonly<Record<string, RegExp>>
}

const problem = ['problem', 'question', 'prompt', 'Problem'] as const
const answer = [
  'answer',
  'expected_answer',
  'reward_model.ground_truth',
  'ground_truth',
  'final_answer',
  'Answer',
] as const
const common = { problem, answer, split: 'train' }
const evaluation = { ...common, use: 'evaluation', split: 'test' } as const

const openMathReasoning: HubPlace = {
  repo: 'nvidia/OpenMathReasoning',
  files: {
    train: /^data\/cot-.*\.parquet$/,
    tir: /^data\/tir-.*\.parquet$/,
    additional: /^data\/additional.*\.parquet$/,
  },
}

const list: readonly ProblemSet[] = [
  {
    ...common,
    name: 'dapo',
    title: 'DAPO-Math-17k',
    use: 'training',
    hub: { repo: 'open-r1/DAPO-Math-17k-Processed', files: { train: /^en\/.*\.parquet$/, all: /^all\/.*\.parquet$/ } },
    // Fields with the bare problem come before fields that wrap it in a prompt.
    problem: ['prompt', 'problem', 'question', 'extra_info.question', 'source_prompt'],
    answer: ['answer', 'reward_model.ground_truth', 'solution', 'expected_answer'],
    answers: 'integer',
  },
  {
    ...common,
    name: 'openmath',
    title: 'OpenMathReasoning',
    use: 'training',
    hub: openMathReasoning,
    answers: 'integer',
    agreement: { least: 2, of: 16 },
    only: { problem_type: /^has_answer_extracted$/ },
  },
  {
    ...common,
    name: 'aops',
    title: 'OpenMathReasoning, forum problems',
    use: 'training',
    hub: openMathReasoning,
    answers: 'integer',
    agreement: { least: 2, of: 16 },
    only: { problem_type: /^has_answer_extracted$/, problem_source: /aops/i },
  },
  {
    ...common,
    name: 'gsm8k',
    title: 'GSM8K',
    use: 'training',
    hub: { repo: 'openai/gsm8k', files: { train: /^main\/train-.*\.parquet$/, test: /^main\/test-.*\.parquet$/ } },
    answers: 'worked',
  },
  {
    ...evaluation,
    name: 'aime24',
    title: 'AIME 2024',
    hub: { repo: 'HuggingFaceH4/aime_2024', files: { test: /^data\/.*\.parquet$/ } },
    answers: 'integer',
  },
  {
    ...evaluation,
    name: 'aime25',
    title: 'AIME 2025',
    hub: { repo: 'opencompass/AIME2025', files: { test: /^aime2025-I+\.jsonl$/ } },
    answers: 'integer',
  },
  {
    ...evaluation,
    name: 'math500',
    title: 'MATH-500',
    hub: { repo: 'HuggingFaceH4/MATH-500', files: { test: /^test\.jsonl$/ } },
    answers: 'text',
  },
  {
    ...evaluation,
    name: 'hmmt25',
    title: 'HMMT February 2025',
    hub: { repo: 'MathArena/hmmt_feb_2025', files: { test: /^data\/.*\.parquet$/ } },
    answers: 'text',
  },
]

export const problemSets: ReadonlyMap<string, ProblemSet> = new Map(list.map(set => [set.name, set]))
