/**
 * `troupe data NAME`: converts a published set of problems or conversations into the JSONL file that a recipe reads.
 *
 * in   files, directories, or data sets of the Hugging Face hub; as filters, evaluation problems (--against) and a
 *      model's sampled answers (--answers)
 * out  JSONL, for problems of {id, problem, answer, source}; a report on stdout
 * Invariant: if --out is a regular file or does not exist, it is written whole or not at all. The report accounts for
 * every row that was read.
 */

import { createHash } from 'node:crypto'
import { resolve } from 'node:path'
import { type Command, Option } from 'commander'
import { type ConversationSet, conversationSets } from '../../recipes/data/conversations/formats'
import { prepareConversations } from '../../recipes/data/conversations/prepare'
import { type Decontaminator, decontaminator } from '../../recipes/data/decontaminate'
import { hubFiles } from '../../recipes/data/hub'
import { type PrepareOptions, prepare } from '../../recipes/data/prepare'
import type { RowCounts } from '../../recipes/data/rowCounts'
import { dataFiles, noData, type ReadRow, rowsOfFile } from '../../recipes/data/rows'
import { type ProblemSet, problemSets } from '../../recipes/data/sets'
import { TroupeError } from '../../runtime/errors'
import { didYouMean } from '../../runtime/settings/nearestName'
import { readyOut, writeOut } from '../io/writeOut'
import { shareOf, wholeNumber } from '../options/readers'
import { repeatable } from '../options/repeatable'
import { type DataReport, printReport } from './report'

interface DataOptions {
  readonly from: readonly string[]
  readonly out: string
  readonly split?: string
  readonly revision?: string
  readonly against: readonly string[]
  readonly answers: readonly string[]
  readonly agreement?: { readonly least: number; readonly of: number }
  readonly integer?: boolean
  readonly seed?: number
  readonly order?: 'shuffled' | 'published'
  readonly limit?: number
  readonly largestBadShare: number
  readonly cache: string
  readonly json?: boolean
}

const names = (sets: ReadonlyMap<string, unknown>) => [...sets.keys()].join(', ')
const words = 8
const defaultSeed = 1

export function registerData(program: Command): void {
  program
    .command('data <name>')
    .description(`prepare a data set: problems (${names(problemSets)}) or conversations (${names(conversationSets)})`)
    .requiredOption(
      '--from <place>',
      'source: a file or directory (JSONL, JSON, parquet), hub, or hub:OWNER/NAME (repeatable)',
      repeatable,
      [],
    )
    .requiredOption('--out <file>', 'JSONL file to write')
    .option('--split <name>', 'split of the data set on the hub')
    .option('--revision <name>', 'revision of the data set on the hub (default main)')
    .option(
      '--against <file>',
      'file of evaluation problems: drop a problem that shares 8 words in a row with one of them (repeatable)',
      repeatable,
      [],
    )
    .option(
      '--answers <file>',
      "file of a model's sampled answers: rows {problem | id, answers: […]} (repeatable)",
      repeatable,
      [],
    )
    .option(
      '--agreement <n/m>',
      'keep problems of which at least n of m sampled answers match the answer (0: keep all)',
      agreementOf,
    )
    .option('--integer', 'keep only problems whose answer is an integer')
    .option('--no-integer', 'keep problems with other answers than integers as well')
    .option(
      '--seed <n>',
      `seed of the shuffle (default ${defaultSeed} if rows are shuffled)`,
      wholeNumber(0, 2 ** 31 - 1),
    )
    .addOption(
      new Option(
        '--order <order>',
        'order of the written rows (default: published for evaluation sets, else shuffled)',
      ).choices(['shuffled', 'published']),
    )
    .option('--limit <n>', 'write at most N rows', wholeNumber(1, 1e9))
    .option(
      '--largest-bad-share <share>',
      'fail when the share of broken rows is larger than this',
      shareOf('from 0'),
      0.2,
    )
    .option('--cache <directory>', 'directory for files downloaded from the hub', '.troupe/data')
    .option('--json', 'print the report as JSON')
    .action(async (name: string, options: DataOptions) => {
      const report = await prepareData(name, options)
      process.stdout.write(options.json ? `${JSON.stringify(report, null, 2)}\n` : printReport(report))
    })
}

async function prepareData(name: string, options: DataOptions): Promise<DataReport> {
  const conversations = conversationSets.get(name)
  if (conversations !== undefined) return prepareDemonstrations(conversations, options)
  const set = problemSets.get(name) ?? unknownSet(name)
  readyOut(options.out)
  const files = await filesOf(set, options)
  const evaluation = options.against.length === 0 ? undefined : await against(set, options.against)
  const training = set.use === 'training'
  const shuffles = options.order === undefined ? training || options.seed !== undefined : options.order === 'shuffled'
  const plan: PrepareOptions = {
    set,
    integer: options.integer ?? set.answers === 'integer',
    agreement: options.agreement ?? set.agreement,
    answers: options.answers.length === 0 ? undefined : allRows(await allFiles(options.answers)),
    evaluation,
    seed: shuffles ? (options.seed ?? defaultSeed) : undefined,
    limit: options.limit,
  }
  const prepared = await prepare(allRows(files), plan)
  refuseBad(prepared, files, options.largestBadShare)
  refuseEmpty(prepared, set)
  const { out, sha256 } = writeRows(options.out, prepared.problems)
  const { problems, ...counted } = prepared
  return {
    ...{ set: set.name, title: set.title, kind: set.use, from: files, ...counted, kept: problems.length, out },
    integer: plan.integer,
    agreement: plan.agreement === undefined || plan.agreement.least === 0 ? null : plan.agreement,
    decontaminated: evaluation === undefined ? null : { words, problems: evaluation.problems, files: options.against },
    seed: plan.seed ?? null,
    sha256,
  }
}

/**
 * Prepares conversations for a cold start (supervised fine-tuning before reinforcement learning). Conversations have no
 * answers, so the filters by answer do not apply.
 */
async function prepareDemonstrations(set: ConversationSet, options: DataOptions): Promise<DataReport> {
  if (
    options.against.length + options.answers.length > 0 ||
    options.agreement !== undefined ||
    options.integer === true
  ) {
    throw wrong(
      `${set.name} holds conversations, but --against, --answers, --agreement and --integer apply to problems only`,
      'leave these options out',
    )
  }
  readyOut(options.out)
  const files = await filesOf({ ...set, split: 'train' }, options)
  const seed = options.order === 'published' ? undefined : (options.seed ?? defaultSeed)
  const prepared = await prepareConversations(allRows(files), set, { seed, limit: options.limit })
  refuseBad(prepared, files, options.largestBadShare)
  const { conversations, ...counted } = prepared
  refuseEmpty({ ...prepared, problems: conversations }, set)
  const { out, sha256 } = writeRows(options.out, conversations)
  return {
    ...{ set: set.name, title: set.title, kind: 'conversations', from: files, ...counted, out },
    kept: conversations.length,
    ...{ integer: false, agreement: null, decontaminated: null, seed: seed ?? null, sha256 },
  }
}

function writeRows(file: string, rows: readonly unknown[]): { readonly out: string; readonly sha256: string } {
  const lines = rows.map(row => `${JSON.stringify(row)}\n`)
  writeOut(file, lines)
  const digest = createHash('sha256')
  for (const line of lines) digest.update(line)
  return { out: resolve(file), sha256: digest.digest('hex') }
}

type Place = Pick<ProblemSet, 'name' | 'split'> & Partial<Pick<ProblemSet, 'hub'>>

async function filesOf(set: Place, options: DataOptions): Promise<readonly string[]> {
  const files: string[] = []
  for (const from of options.from) {
    if (!/^hub(:|$)/.test(from)) {
      files.push(...(await dataFiles(from)))
      continue
    }
    if (set.hub === undefined)
      throw wrong(`${set.name} is not on the hub: --from ${from}`, 'give a file or a directory: --from DIR')
    const repo = from === 'hub' ? set.hub.repo : from.slice('hub:'.length)
    if (!/^[\w.-]+\/[\w.-]+$/.test(repo))
      throw wrong(`--from ${from} does not name a data set`, 'write --from hub:OWNER/NAME')
    const { split = set.split, revision } = options
    const paths =
      repo === set.hub.repo ? set.hub.files[split] : new RegExp(`(^|/)${escaped(split)}[^/]*\\.(parquet|jsonl?)$`)
    if (paths === undefined) {
      throw wrong(`${set.name} has no split '${split}'`, `its splits: ${Object.keys(set.hub.files).join(', ')}`)
    }
    const onFile = (path: string, bytes: number) =>
      process.stderr.write(`${repo}/${path}: ${(bytes / 2 ** 20).toFixed(1)} MiB\n`)
    const common = { repo, paths, cache: options.cache, onFile }
    files.push(...(await hubFiles(revision === undefined ? common : { ...common, revision })))
  }
  return files
}

async function against(set: ProblemSet, places: readonly string[]): Promise<Decontaminator> {
  const evaluation = decontaminator(words)
  const fields = [...new Set([...set.problem, 'problem', 'question', 'prompt', 'Question'])]
  for (const file of await allFiles(places)) {
    const before = evaluation.problems
    for await (const { row } of rowsOfFile(file)) {
      const texts =
        typeof row === 'object' && row !== null ? fields.map(field => (row as Record<string, unknown>)[field]) : []
      const text = texts.find(value => typeof value === 'string')
      if (typeof text === 'string') evaluation.add(text)
    }
    if (evaluation.problems === before) {
      throw noData(
        `--against ${file} holds no problems`,
        `rows must have a text in one of the fields ${fields.join(', ')}`,
      )
    }
  }
  return evaluation
}

async function allFiles(places: readonly string[]): Promise<readonly string[]> {
  return (await Promise.all(places.map(dataFiles))).flat()
}

async function* allRows(files: readonly string[]): AsyncGenerator<ReadRow> {
  for (const file of files) yield* rowsOfFile(file)
}

function refuseBad({ rows, broken, brokenAt }: RowCounts, files: readonly string[], largest: number): void {
  const bad = Object.values(broken).reduce((sum, n) => sum + n, 0)
  if (rows > 0 && bad <= largest * rows) return
  const why = Object.entries(broken).map(([reason, n]) => `${n} ${reason}`)
  throw noData(
    rows === 0
      ? `${files.join(', ')}: the files have no rows`
      : `${files.join(', ')}: ${bad} of ${rows} rows are broken: ${why.join(', ')}; the first are at ${brokenAt.join(', ')}`,
    rows === 0
      ? 'give the file in which the set is published'
      : `this exceeds --largest-bad-share ${largest}; check that the file belongs to this set`,
  )
}

function refuseEmpty(
  { problems, rows, broken, dropped }: RowCounts & { readonly problems: readonly unknown[] },
  set: { readonly title: string },
): void {
  if (problems.length > 0) return
  const why = Object.entries({ ...broken, ...dropped }).map(([reason, n]) => `${n} ${reason}`)
  const hint =
    dropped['no sampled answers'] === undefined
      ? 'loosen the filter that the reasons name; for problems, --no-integer also keeps answers that are not integers'
      : 'give sampled answers (--answers FILE of {problem, answers: […]}), or keep problems without sampled answers (--agreement 0)'
  throw noData(`none of ${rows} rows of ${set.title} is left: ${why.join(', ')}`, hint)
}

function unknownSet(name: string): never {
  const known = [...problemSets.keys(), ...conversationSets.keys()]
  throw wrong(`no data set is named '${name}'${didYouMean(name, known)}`, `known data sets: ${known.join(', ')}`)
}

function agreementOf(text: string): { least: number; of: number } {
  const found = /^(\d+)(?:\/(\d+))?$/.exec(text)
  const [least, of] = [Number(found?.[1]), Number(found?.[2] ?? 16)]
  if (found === null || least > of)
    throw wrong(
      `--agreement ${text} is not valid; it must be n/m, or n alone for n/16, with n ≤ m`,
      'for example --agreement 2/16',
    )
  return { least, of }
}

const escaped = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')

const wrong = (message: string, hint: string) =>
  new TroupeError('cli.wrong_usage', { boundary: 'cli', retriable: false, message, hint })
