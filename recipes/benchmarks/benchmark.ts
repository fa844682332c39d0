/**
 * Declares the benchmarks by name: how a file is read, which reward judges an answer, and the paper's protocol.
 *
 * Protocol (arXiv 2508.20722 §5.1): mathematics and GPQA use the tool, 30K tokens, at most 30 turns, temperature 0.6
 * and the mean of 16 samples. BFCL, IFEval and Arena-Hard use no tool, temperature 0 and one sample. GSM8K, which the
 * paper does not report, has one sample and otherwise the settings of mathematics.
 */
import type { RewardFunction } from '../../config'
import { pythonTool } from '../../sandbox/tools/pythonTool'
import { arenaHardReward, parseArenaHard } from './arenaHard'
import { bfclReward, parseBfcl } from './bfcl'
import { parseGpqa } from './gpqa'
import { ifevalReward, parseIfeval } from './ifeval'
import { type Printed, printed } from './printed'
import type { Problems } from './problem'
import { parseProblems, type RowFormat } from './rows'

interface BenchmarkFiles {
  readonly text: string
  /** Text of the second file: possible answers (bfcl), the baseline's answers (arena-hard). */
  readonly answers?: string
  /** Path of a Python file with the functions that executable categories call (bfcl). */
  readonly functionsFile?: string
  readonly seed: number
}

export interface Benchmark {
  readonly name: string
  readonly title: string
  /** Number of samples per problem (K). Samples, temperature and turns follow the protocol in this file's header. */
  readonly samples: number
  readonly temperature: number
  readonly turns: number
  /** Name that reports use for the mean reward. */
  readonly score: string
  /** Results that the paper prints for this benchmark; none for GSM8K. */
  readonly printed: readonly Printed[]
  /** Description of a row's form, for the error about a file with other rows. */
  readonly form: string
  /** File names that `eval all` looks for in a directory. */
  readonly files: readonly string[]
  /**
   * Second file of the benchmark: what it holds, its usual names, whether it is required; undefined if there is only
   * one.
   */
  readonly second?: { readonly what: string; readonly files: readonly string[]; readonly required: boolean }
  /** Name of the reward: one of `rewards`, or a built-in one. */
  readonly reward: string
  readonly rewards?: Readonly<Record<string, RewardFunction>>
  readonly rewardTimeoutMs?: number
  /** True to offer the Python tool to the model. */
  readonly usesTool: boolean
  /**
   * System message for a model that was not trained with a system message of its own; empty: no system message.
   * Problems with messages of their own (bfcl) do not use it.
   */
  readonly system: string
  read(files: BenchmarkFiles): Problems
}

const withTool = `Reason step by step, and calculate with ${pythonTool.name}: its output comes back to you.`
const mathSystem = `Solve the problem. ${withTool} When you are sure, end with <answer>\\boxed{RESULT}</answer>.`
const choiceSystem = `Choose the right answer. ${withTool} When you are sure, end with <answer>\\boxed{LETTER}</answer>.`

const once = { samples: 1, temperature: 0, turns: 1, usesTool: false, system: '' } as const
const averaged = { samples: 16, temperature: 0.6, turns: 30, usesTool: true } as const

/** Declares a benchmark of questions with one answer each, in `\boxed{}`. */
function mathematics(name: string, title: string, files: readonly string[], format: RowFormat): Benchmark {
  return {
    ...averaged,
    ...{ name, title, files, score: 'pass@1', reward: 'math', system: mathSystem, printed: printed[name]! },
    form: `{"${format.question[0]}": …, "${format.answer[0]}": …}`,
    read: ({ text }) => parseProblems(text, format),
  }
}

const contest = { question: ['problem', 'question'], answer: ['answer'] } as const

const all: readonly Benchmark[] = [
  mathematics('aime24', 'AIME 2024', ['aime24.jsonl', 'aime_2024.jsonl'], { ...contest, truth: 'integer' }),
  mathematics('aime25', 'AIME 2025', ['aime25.jsonl', 'aime_2025.jsonl'], { ...contest, truth: 'integer' }),
  mathematics('hmmt25', 'HMMT February 2025', ['hmmt25.jsonl', 'hmmt25-feb.jsonl'], { ...contest, truth: 'text' }),
  mathematics('math500', 'MATH-500', ['math500.jsonl', 'math-500.jsonl'], { ...contest, truth: 'text' }),
  {
    ...mathematics('gsm8k', 'GSM8K', ['gsm8k.test.jsonl', 'gsm8k.jsonl'], {
      ...{ question: ['question'], answer: ['answer'], truth: 'worked' as const },
    }),
    samples: 1,
  },
  {
    ...averaged,
    ...{ name: 'gpqa', title: 'GPQA Diamond', score: 'pass@1', reward: 'choice', system: choiceSystem },
    ...{ printed: printed.gpqa!, files: ['gpqa_diamond.csv', 'gpqa.csv'] },
    form: 'CSV with the columns Question, Correct Answer, Incorrect Answer 1 to 3, Record ID',
    read: ({ text, seed }) => parseGpqa(text, seed),
  },
  {
    ...once,
    ...{
      name: 'ifeval',
      title: 'IFEval',
      score: 'strict, prompts',
      reward: 'ifeval',
      rewards: { ifeval: ifevalReward },
    },
    ...{ printed: printed.ifeval!, files: ['input_data.jsonl', 'ifeval.jsonl'] },
    form: '{"key": …, "prompt": …, "instruction_id_list": […], "kwargs": [{…}]}',
    read: ({ text }) => parseIfeval(text),
  },
  {
    ...once,
    ...{ name: 'bfcl', title: 'BFCL v3', score: 'accuracy', reward: 'bfcl', rewards: { bfcl: bfclReward } },
    ...{ printed: printed.bfcl!, files: ['BFCL_v3_simple.json', 'bfcl.jsonl'] },
    second: {
      what: 'possible answers',
      files: ['possible_answer/BFCL_v3_simple.json', 'bfcl.answers.jsonl'],
      required: false,
    },
    form: '{"id": …, "question": [[{"role": …, "content": …}]], "function": [{…}]}, and {"id": …, "ground_truth": […]}',
    read: ({ text, answers, functionsFile }) => parseBfcl(text, answers, functionsFile),
  },
  {
    ...once,
    ...{
      name: 'arena-hard',
      title: 'Arena-Hard',
      score: 'win rate',
      reward: 'arena-hard',
      printed: printed['arena-hard']!,
    },
    ...{ rewards: { 'arena-hard': arenaHardReward }, rewardTimeoutMs: 600_000 },
    files: ['question.jsonl', 'arena-hard.jsonl'],
    second: {
      what: "the baseline's answers",
      files: ['gpt-4-0314.jsonl', 'arena-hard.baseline.jsonl'],
      required: true,
    },
    form: '{"question_id": …, "turns": [{"content": …}]}, and {"question_id": …, "choices": [{"turns": [{"content": …}]}]}',
    read: ({ text, answers }) => parseArenaHard(text, answers),
  },
]

export const benchmarks: ReadonlyMap<string, Benchmark> = new Map(all.map(one => [one.name, one]))
