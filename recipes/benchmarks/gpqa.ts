/**
 * Reads GPQA (arXiv 2311.12022): questions with one right and three wrong answers, in its owners' CSV.
 *
 * in   the text of gpqa_diamond.csv        out  problems with four lettered choices; the truth is the right letter
 * Invariant: only the seed and the Record ID decide the order of a question's choices, so that every run and every
 * sample of a problem sees the same letters.
 */
import { parse } from 'csv-parse/sync'
import { pcg32, sampleUniform } from '../../kernels'
import { deriveSeed } from '../../runtime/effects'
import { asError } from '../../runtime/errors'
import { badRow, type Problems, problemCollector } from './problem'

const columns = {
  question: 'Question',
  right: 'Correct Answer',
  wrong: ['Incorrect Answer 1', 'Incorrect Answer 2', 'Incorrect Answer 3'],
  id: 'Record ID',
} as const

export function parseGpqa(text: string, seed = 0): Problems {
  const { add, drop, result } = problemCollector()
  for (const { record, line } of recordsOf(text)) {
    const field = (name: string) => record[name]?.trim() ?? ''
    const question = field(columns.question)
    const answers = [field(columns.right), ...columns.wrong.map(field)]
    if (question === '') drop('no Question')
    else if (answers.some(answer => answer === '')) drop('an answer is missing')
    else if (new Set(answers).size < answers.length) drop('two answers are the same')
    else {
      const id = field(columns.id)
      if (id === '') throw badRow(line, `the row has no ${columns.id}`, 'give the CSV as the owners of GPQA publish it')
      const order = shuffled([0, 1, 2, 3], deriveSeed('gpqa', seed, id))
      const choices = order.map(at => answers[at]!)
      const lettered = choices.map((choice, at) => `${String.fromCharCode(65 + at)}) ${choice}`)
      const truth = String.fromCharCode(65 + order.indexOf(0))
      const metadata = { choices, subdomain: field('Subdomain'), domain: field('High-level domain') }
      add({ id, question: `${question}\n\n${lettered.join('\n')}`, truth, metadata }, line)
    }
  }
  return result
}

function recordsOf(
  text: string,
): readonly { readonly record: Readonly<Record<string, string>>; readonly line: number }[] {
  try {
    const options = { columns: true, bom: true, info: true, relax_column_count: true, skip_empty_lines: true } as const
    const read = parse(text, options) as unknown as readonly {
      record: Record<string, string>
      info: { lines: number }
    }[]
    return read.map(({ record, info }) => ({ record, line: info.lines }))
  } catch (thrown) {
    throw badRow(
      Number((thrown as { lines?: number }).lines ?? 0),
      asError(thrown).message,
      'give the CSV as the owners of GPQA publish it',
    )
  }
}

/**
 * Returns a random permutation of the items. `sampleUniform` keeps the order of the items that it draws, so the items
 * are drawn one by one.
 */
function shuffled<T>(items: readonly T[], seed: number): T[] {
  const random = pcg32(seed)
  const left = [...items]
  return items.map(() => {
    const [taken] = sampleUniform(random, left, 1)
    left.splice(left.indexOf(taken!), 1)
    return taken!
  })
}
