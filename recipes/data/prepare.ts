/**
 * Filters the rows of a published set into the problems that a recipe trains or evaluates on.
 *
 * in   rows, filters        out  problems in their order, and the number of rows by outcome
 * Invariant: rows = kept + broken + dropped, each row counted under one reason. Rows, filters and seed decide the
 * result. A problem's position in the shuffle is a hash of seed and problem, so it does not depend on the other
 * problems.
 */
import { createHash } from 'node:crypto'
import { normalizeInteger, sameInteger } from '../../kernels/grading/integers'
import { deriveSeed } from '../../runtime/effects'
import { type Decontaminator, wordsOf } from './decontaminate'
import { type PublishedProblem, problemOf, sampledIn } from './problemOf'
import { type RowCounts, rowCounter } from './rowCounts'
import type { ReadRow } from './rows'
import type { ProblemSet } from './sets'

export interface PrepareOptions {
  readonly set: ProblemSet
  /** True to keep only problems whose answer is an integer. */
  readonly integer: boolean
  /**
   * Lower bound on agreement: keeps a problem if at least `least` of its first `of` sampled answers match the published
   * answer.
   */
  readonly agreement?: { readonly least: number; readonly of: number } | undefined
  /**
   * Rows of other files with sampled answers, matched to the problems by problem text or id; read only with
   * `agreement`.
   */
  readonly answers?: AsyncIterable<ReadRow> | undefined
  /** Evaluation problems: a problem that shares 8 words in a row with one of them is dropped. */
  readonly evaluation?: Decontaminator | undefined
  /** Seed of the shuffle; undefined keeps the order of the rows. */
  readonly seed?: number | undefined
  /** Upper bound on the number of kept problems, applied after the shuffle. */
  readonly limit?: number | undefined
}

/** Problem as one line of the file that `troupe data` writes. */
interface PreparedProblem {
  readonly id: string
  readonly problem: string
  readonly answer: string
  readonly source: string
}

export interface Prepared extends RowCounts {
  readonly problems: readonly PreparedProblem[]
}

interface Candidate extends PublishedProblem {
  /** Number of later rows with the same problem. */
  again: number
  /** True if two rows with this problem have different answers. */
  differs: boolean
  sampled: string[]
}

/**
 * Upper bound on the digits of an answer where only integers are kept. Longer integers teach a model nothing and strain
 * every parser.
 */
const maxDigits = 18

export async function prepare(rows: AsyncIterable<ReadRow>, options: PrepareOptions): Promise<Prepared> {
  const { set } = options
  const counter = rowCounter()
  const known = new Map<string, Candidate>()
  for await (const { row, place } of rows) {
    counter.row()
    const read = problemOf(row, set)
    if ('broken' in read) counter.broken(read.broken, place)
    else if ('other' in read) counter.dropped(read.other)
    else {
      const key = keyOf(read.problem)
      const before = known.get(key)
      if (before === undefined) known.set(key, { ...read, sampled: [...read.sampled], again: 0, differs: false })
      else {
        before.again++
        before.sampled.push(...read.sampled)
        if (!agrees(before.answer, read.answer)) before.differs = true
      }
    }
  }
  if (options.agreement !== undefined) await addAnswers(known, options.answers)

  const problems: PreparedProblem[] = []
  const ids = new Set<string>()
  for (const [key, candidate] of known) {
    counter.dropped('repeats the problem of an earlier row', candidate.again)
    // Ids begin with the set's name, so they differ when files of several sets are merged. A dropped problem takes an
    // id, too: otherwise the ids of other problems would depend on the filters.
    const own = candidate.id === undefined ? [] : [candidate.id]
    const names = [...own, digestOf(nameOf(candidate.problem))].map(name => `${set.name}-${name}`)
    const id = names.find(name => !ids.has(name)) ?? `${set.name}-${digestOf(`= ${key}`)}`
    ids.add(id)
    const reason = whyNot(candidate, options)
    if (reason !== undefined) {
      counter.dropped(reason)
      continue
    }
    const answer = set.answers === 'text' && !options.integer ? candidate.answer : normalizeInteger(candidate.answer)
    const { problem, rest } = candidate
    problems.push({ id, problem, answer: answer ?? candidate.answer, source: set.name, ...rest })
  }
  const { seed, limit = problems.length } = options
  const ordered = seed === undefined ? problems : shuffled(problems, seed)
  counter.dropped('beyond the limit', ordered.length - Math.min(limit, ordered.length))
  return { problems: ordered.slice(0, limit), ...counter.counts() }
}

function whyNot(candidate: Candidate, { integer, agreement, evaluation }: PrepareOptions): string | undefined {
  if (candidate.differs) return 'rows with this problem have different answers'
  const asInteger = normalizeInteger(candidate.answer)
  if (integer && asInteger === undefined) return 'answer is not an integer'
  if (integer && asInteger!.replace('-', '').length > maxDigits) return `integer of more than ${maxDigits} digits`
  if (agreement !== undefined && agreement.least > 0) {
    const sampled = candidate.sampled.slice(0, agreement.of)
    if (sampled.length === 0) return 'no sampled answers'
    const matching = sampled.filter(answer => agrees(answer, candidate.answer)).length
    if (matching < agreement.least) return `fewer than ${agreement.least} of ${agreement.of} sampled answers match`
  }
  return evaluation?.overlaps(candidate.problem) ? 'shares 8 words in a row with an evaluation problem' : undefined
}

async function addAnswers(known: Map<string, Candidate>, answers: AsyncIterable<ReadRow> | undefined): Promise<void> {
  if (answers === undefined) return
  const byId = new Map([...known.values()].flatMap(c => (c.id === undefined ? [] : [[c.id, c] as const])))
  for await (const { row } of answers) {
    if (typeof row !== 'object' || row === null) continue
    const fields = row as Readonly<Record<string, unknown>>
    const { problem, question, id, answer } = fields
    const text = typeof problem === 'string' ? problem : typeof question === 'string' ? question : undefined
    const found = text === undefined ? byId.get(String(id)) : known.get(keyOf(text))
    const sampled = sampledIn(fields)
    found?.sampled.push(...(sampled.length > 0 ? sampled : sampledIn({ answers: [answer] })))
  }
}

/** Returns a short digest that names a problem; among a million problems a collision is practically impossible. */
const digestOf = (key: string) => createHash('sha256').update(key).digest('hex').slice(0, 16)

const agrees = (a: string, b: string): boolean => sameInteger(a, b) ?? bare(a) === bare(b)

const bare = (answer: string) =>
  answer.replace(/\\(?:left|right|displaystyle|,|;|!)|\s|\$/g, '').replace(/[dt]frac/g, 'frac')

/**
 * Matches punctuation of sentences: next to a word or at the end, and not directly before a letter or digit (`.5`,
 * `x,y`).
 */
const punctuation =
  /(?<=(?<![\p{L}\\])\p{L}{2,}[\s$]*)[.,;:?](?![\p{L}\p{N}])|[.,;:?](?=[\s$]+\p{L}{2})|[.,;:?](?=[\s$]*$)/gu

/**
 * Returns the key of a problem: two rows with one key hold the same problem. Blanks, dollars, punctuation and the case
 * of words make no difference; the signs and powers of formulas, and the case of variables and of TeX commands, do.
 */
function keyOf(problem: string): string {
  const form = problem.replace(/[^\p{No}\p{Lm}]+/gu, text => text.normalize('NFKC')).replace(/\\[,;:! $]/g, ' ')
  const signsOf = (text: string) => text.match(/\\?[\p{L}\p{M}]+|\p{Nd}+|[^\s$]/gu) ?? []
  const withoutPunctuation = signsOf(form.replace(punctuation, ' '))
  const signs = withoutPunctuation.length > 0 ? withoutPunctuation : signsOf(form)
  return signs.map(sign => (/^\p{L}{2}/u.test(sign) ? sign.toLowerCase() : sign)).join(' ')
}

/**
 * Returns the text from which a problem's id and its position in the shuffle are made. It is coarser than the key, and
 * must never change: files that users have already written depend on it.
 */
function nameOf(problem: string): string {
  const signs = problem.normalize('NFKC').toLowerCase().replace(/\s+/g, '')
  return wordsOf(problem).length === 0 ? signs : signs.replace(/[.,;:!?$]|\\[,;!]/g, '')
}

function shuffled(problems: readonly PreparedProblem[], seed: number): PreparedProblem[] {
  const placed = problems.map(problem => ({ problem, at: deriveSeed('data/order', seed, nameOf(problem.problem)) }))
  return placed.sort((a, b) => a.at - b.at || (a.problem.id < b.problem.id ? -1 : 1)).map(({ problem }) => problem)
}
