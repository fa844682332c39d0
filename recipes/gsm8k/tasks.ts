/**
 * What a run on GSM8K trains on, demonstrates and is evaluated on, from the rows of one or two files.
 *
 * in   rows, a seed, how many demonstrations       out  training rows in their order, evaluation rows, demonstrations
 * Invariant: pure. Whether a row of the training file is set aside for evaluation is a hash of its question, so it never
 * changes and equal questions stay together. No question that may be evaluated on is trained on or demonstrated.
 */
import type { Task } from '../../messages/facts'
import { taskId } from '../../messages/ids'
import { deriveSeed } from '../../runtime/effects'
import { type Demonstration, demonstrationOf } from './demonstrations'
import type { Gsm8kRow } from './rows'

export interface Gsm8kOptions {
  readonly seed: number
  /** Demonstrations at most. */
  readonly demonstrations: number
  /** Rows with more calculator notes are left out; null: none are. */
  readonly maxNotes: number | null
}

export interface Gsm8kPlan {
  /** Demonstrated rows come first, then others, last those that no demonstration could be made from. */
  readonly train: readonly Gsm8kRow[]
  readonly evaluation: readonly Gsm8kRow[]
  readonly demonstrations: readonly Demonstration[]
  /** Rows that are left out, or that gave no demonstration when they were asked for one, by reason. */
  readonly dropped: Readonly<Record<string, number>>
}

/** One in so many questions of the training file is set aside where there is no file for evaluation. */
const evaluationOneIn = 10

/** `evaluationRows`: of a file of their own; undefined sets some of `rows` aside. */
export function planOf(
  rows: readonly Gsm8kRow[],
  evaluationRows: readonly Gsm8kRow[] | undefined,
  options: Gsm8kOptions,
): Gsm8kPlan {
  const { seed, maxNotes } = options
  const dropped: Record<string, number> = {}
  const drop = (reason: string) => {
    dropped[reason] = (dropped[reason] ?? 0) + 1
  }
  const fits = (row: Gsm8kRow): boolean => {
    const easy = maxNotes === null || row.notes.length <= maxNotes
    if (!easy) drop(`more than ${maxNotes} calculator notes`)
    return easy
  }
  const held = evaluationRows === undefined ? undefined : new Set(evaluationRows.map(row => keyOf(row.question)))
  const isHeld = ({ question }: Gsm8kRow): boolean =>
    held?.has(keyOf(question)) ?? deriveSeed('gsm8k/split', keyOf(question)) % evaluationOneIn === 0

  const train: Gsm8kRow[] = []
  const setAside: Gsm8kRow[] = []
  for (const row of rows.filter(fits)) {
    if (!isHeld(row)) train.push(row)
    else if (held === undefined) setAside.push(row)
    else drop('also in the file for evaluation')
  }

  const demonstrations: Demonstration[] = []
  // A group needs a rollout that is right and one that is wrong. A model of this size, after one pass over them, solves the
  // rows that it imitated now and then, other rows hardly ever, and rows whose notes do not lead to the answer never.
  const imitated: Gsm8kRow[] = []
  const odd: Gsm8kRow[] = []
  const others: Gsm8kRow[] = []
  for (const row of shuffled(train, seed)) {
    const made = demonstrationOf(row, seed)
    if (typeof made === 'string') {
      drop(`no demonstration: ${made}`)
      odd.push(row)
    } else if (demonstrations.length < options.demonstrations) {
      demonstrations.push(made)
      imitated.push(row)
    } else others.push(row)
  }
  const evaluation = shuffled(evaluationRows?.filter(fits) ?? setAside, seed)
  return { train: [...imitated, ...others, ...odd], evaluation, demonstrations, dropped }
}

export const taskOf = (row: Gsm8kRow, split: 'train' | 'eval', system: string): Task => ({
  id: taskId(`gsm8k/${split}/${row.line}`),
  messages: [
    { role: 'system', content: system },
    { role: 'user', content: row.question },
  ],
  truth: row.truth,
  reward: '', // the recipe's own
})

/** The same question in other spacing or case is the same question. */
const keyOf = (question: string) => question.toLowerCase().replace(/\s+/g, ' ')

/** By a hash of seed and question: a row's place among the others does not depend on how many there are. */
function shuffled(rows: readonly Gsm8kRow[], seed: number): Gsm8kRow[] {
  const placed = rows.map(row => ({ row, at: deriveSeed('gsm8k/order', seed, row.question) }))
  return placed.sort((a, b) => a.at - b.at || a.row.line - b.row.line).map(({ row }) => row)
}
