/**
 * Divides GSM8K's rows, from one or two files, into training rows, evaluation rows and demonstrations.
 *
 * in   rows, a seed, the number of demonstrations
 * out  training rows in their order, evaluation rows, demonstrations
 * Invariant: pure. If the evaluation has no file, a hash of a row's question decides whether the row is set aside for
 * it, so the division never changes and equal questions stay together. No question of the evaluation is trained on or
 * demonstrated.
 */
import type { Task } from '../../messages/facts'
import { taskId } from '../../messages/ids'
import { deriveSeed } from '../../runtime/effects'
import { type Demonstration, demonstrationOf } from './demonstrations'
import type { Gsm8kRow } from './rows'

export interface Gsm8kOptions {
  readonly seed: number
  /** Upper bound on the number of demonstrations. */
  readonly demonstrations: number
  /** Upper bound on the calculator notes of a row; rows with more are left out. null: no bound. */
  readonly maxNotes: number | null
}

export interface Gsm8kPlan {
  /** Training rows: demonstrated rows first, then other rows, last the rows from which no demonstration can be made. */
  readonly train: readonly Gsm8kRow[]
  readonly evaluation: readonly Gsm8kRow[]
  readonly demonstrations: readonly Demonstration[]
  /** Number of rows that were left out, or from which no demonstration could be made, by reason. */
  readonly dropped: Readonly<Record<string, number>>
}

/** One in this many questions of the training file is set aside for the evaluation, if that has no file of its own. */
const evaluationOneIn = 10

/**
 * Divides the rows. `evaluationRows`: rows of the evaluation's own file; if undefined, some of `rows` are set aside.
 */
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
    else drop('also in the evaluation file')
  }

  const demonstrations: Demonstration[] = []
  // Rows are ordered by how likely their groups have both right and wrong rollouts: a group of only one kind gives no
  // gradient. After one pass over the demonstrations, a model of this size sometimes solves the rows that it imitated,
  // hardly ever other rows, and never rows whose notes do not lead to the answer.
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
  reward: '', // an empty name means the reward that the recipe sets
})

/** Returns the key of a question, which does not depend on spacing and case. */
const keyOf = (question: string) => question.toLowerCase().replace(/\s+/g, ' ')

/** Orders rows by a hash of seed and question, so that the order of two rows does not depend on the other rows. */
function shuffled(rows: readonly Gsm8kRow[], seed: number): Gsm8kRow[] {
  const placed = rows.map(row => ({ row, at: deriveSeed('gsm8k/order', seed, row.question) }))
  return placed.sort((a, b) => a.at - b.at || a.row.line - b.row.line).map(({ row }) => row)
}
