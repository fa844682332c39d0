/**
 * `troupe replay export`: writes trajectories for other programs: JSON lines (Troupe's own or ATIF), tables, HTML
 * pages, a fixture, or fine-tuning data. The output goes to stdout or to --out; pages of several trajectories go to a
 * directory, or as one page to FILE.html. A captured session (of an agent that calls the gateway) is written as its
 * training rows (jsonl), as the dashboard's page (FILE.html) or in a fixture; other formats refuse it.
 */
import { join } from 'node:path'
import { type Command, Option } from 'commander'
import { groupOf, type TrajectoryId } from '../../messages/ids'
import { atifTrajectory } from '../../replay/exchange/atif'
import { exportedRows } from '../../replay/exchange/exportedRows'
import { exportedTrajectory, refuseCapturedExport } from '../../replay/exchange/exportedTrajectory'
import { fixtureOf, packFixture } from '../../replay/exchange/fixture'
import { parquetOf } from '../../replay/exchange/parquet'
import { sftConversations } from '../../replay/exchange/sftConversations'
import { type Row, type TableName, tables, trajectoryRow, turnRows } from '../../replay/exchange/tables'
import { trajectoryPage } from '../../replay/exchange/trajectoryPage'
import { type TriedIn, triedSteps } from '../../replay/learning/learnerLog'
import { configOf } from '../../replay/log/recordedConfig'
import type { RecordedRun } from '../../replay/log/recordedRun'
import { modelDirectories, tokenTexts } from '../../replay/tokens/tokenTexts'
import { resolveTarget, trajectoriesOf } from '../../replay/trajectories/resolveId'
import { isCaptured, readTrajectories, type Trajectory } from '../../replay/trajectories/trajectory'
import { makeOut, writeOut } from '../io/writeOut'
import { finiteNumber, wholeNumber } from '../options/readers'
import { type ReadOptions, usageError, withLog, withRun } from './runOptions'
import { jsonText } from './text/jsonText'

interface ExportOptions extends ReadOptions {
  readonly format: 'jsonl' | 'atif' | 'html' | 'fixture' | 'sft' | 'parquet' | 'rows'
  readonly table: TableName
  readonly all?: boolean
  readonly out?: string
  readonly minReward: number
  readonly maxToolErrors: number
  readonly perTask: number
  readonly kept?: boolean
}

/**
 * Upper bound on the trajectories of one page with its data inside: at about 15 KB each, a browser opens it at once.
 */
const mostInPage = 1000

export function registerExport(replay: Command): void {
  const command = replay
    .command('export [target]')
    .description(
      'write trajectories for other programs: JSON lines with every id and logprob, ATIF, tables, HTML pages, a test fixture, SFT data',
    )
    .addOption(
      new Option('--format <format>', 'format of the output')
        .choices(['jsonl', 'atif', 'html', 'fixture', 'sft', 'parquet', 'rows'])
        .default('jsonl'),
    )
    .addOption(
      new Option('--table <table>', 'for the formats parquet and rows (JSON lines): what each row describes')
        .choices(Object.keys(tables))
        .default('trajectories'),
    )
    .option('--all', 'export every trajectory of the run')
    .option(
      '--out <path>',
      'file to write; for pages of several trajectories a directory, or FILE.html for one page with all (default: stdout)',
    )
    .option('--kept', 'export only trajectories that an optimizer step trained on (has no effect on a fixture)')
    .option('--min-reward <r>', 'sft: take only trajectories with at least this reward', finiteNumber, 1)
    .option(
      '--max-tool-errors <n>',
      'sft: take only trajectories with at most this many failed tool calls',
      wholeNumber(0, 2 ** 31),
      0,
    )
    .option(
      '--per-task <n>',
      'sft: take at most this many trajectories of a task, those with the fewest sampled tokens',
      wholeNumber(1, 2 ** 31),
      1,
    )
  withRun(command).action(exportRun)
}

async function exportRun(target: string | undefined, options: ExportOptions): Promise<void> {
  if (target === undefined && options.all !== true) {
    throw usageError(
      'no_target',
      'no trajectory, group or step was named',
      'name one: troupe replay export T, or take all: --all',
    )
  }
  await withLog(options, async recorded => {
    const ids = await trajectoriesOf(recorded)
    const wants = target === undefined ? () => true : resolveTarget(target, ids)
    if (options.format === 'fixture') {
      // A fixture holds whole groups, because a group is decided together.
      const groups = new Set(ids.filter(wants).map(groupOf))
      const fixture = await fixtureOf(recorded, target === undefined ? undefined : g => groups.has(g as never))
      writeOut(options.out, [packFixture(fixture)])
      reportWritten(groups.size, 'groups', options.out)
      return
    }
    const tried = await triedSteps(recorded)
    const all = (await readTrajectories(recorded, wants)).filter(
      one => options.kept !== true || tried.get(one.id)?.outcome === 'completed',
    )
    if (all.length === 0) {
      throw usageError(
        'nothing_to_export',
        options.kept ? 'no selected trajectory was trained on (--kept)' : 'the run has no trajectory',
        '`troupe replay ls` lists the trajectories of a run',
      )
    }
    if (options.format !== 'jsonl' && !isOnePage(options)) refuseCapturedExport(all)
    if (options.format === 'html') await writePages(recorded, all, options.out)
    else if (options.format === 'sft') writeConversations(all, options)
    else if (options.format === 'jsonl' || options.format === 'atif')
      await writeTrajectories(recorded, all, tried, options)
    else await writeTable(recorded, all, tried, options)
  })
}

/** True for `--format html --out FILE.html`, the dashboard as one page, which shows captured sessions as well. */
const isOnePage = ({ format, out }: ExportOptions): boolean => format === 'html' && out?.endsWith('.html') === true

async function writePages(recorded: RecordedRun, all: readonly Trajectory[], out: string | undefined): Promise<void> {
  const texts = tokenTexts(await modelDirectories(recorded))
  if (all.length === 1 && !isCaptured(all[0]!)) return writeOut(out, [trajectoryPage(recorded.run, all[0]!, texts)])
  if (out === undefined) {
    throw usageError(
      'no_out',
      `${all.length} pages cannot go to stdout or one file; expected a directory, or FILE.html for the dashboard with its data inside`,
      'give --out DIR or --out FILE.html, or name one trajectory',
    )
  }
  if (out.endsWith('.html')) return writeDashboard(recorded, all, out)
  makeOut(out)
  for (const one of all) {
    const name = `${one.id.replaceAll('/', '_')}.html`
    writeOut(join(out, name), [trajectoryPage(recorded.run, one, texts)])
  }
  reportWritten(all.length, 'pages', out)
}

/** Writes the dashboard's page with these trajectories inside, as one file that opens without a server. */
async function writeDashboard(recorded: RecordedRun, all: readonly Trajectory[], out: string): Promise<void> {
  if (all.length > mostInPage) {
    throw usageError(
      'too_many',
      `${all.length} trajectories do not fit into one page; expected at most ${mostInPage}`,
      'name a group or a step, take --kept, or serve the run with `troupe dashboard`',
    )
  }
  const { staticPage } =
    require('../../dashboard/server/staticPage') as typeof import('../../dashboard/server/staticPage')
  const wanted = new Set<TrajectoryId>(all.map(one => one.id))
  writeOut(out, [await staticPage(recorded, id => wanted.has(id))])
  reportWritten(all.length, 'trajectories', out)
}

function writeConversations(all: readonly Trajectory[], options: ExportOptions): void {
  const conversations = sftConversations(all, options)
  if (conversations.length === 0) process.stderr.write('no trajectory meets --min-reward and --max-tool-errors\n')
  writeOut(
    options.out,
    jsonLines(conversations, one => one),
  )
  reportWritten(conversations.length, 'conversations', options.out)
}

async function writeTrajectories(
  recorded: RecordedRun,
  all: readonly Trajectory[],
  tried: ReadonlyMap<TrajectoryId, TriedIn>,
  { format, out }: ExportOptions,
): Promise<void> {
  const config = await configOf(recorded)
  const without: TrajectoryId[] = []
  let written = 0
  function* objects(): Generator<object> {
    for (const one of all) {
      const last = tried.get(one.id)
      const trainedIn = last?.outcome === 'completed' ? { step: last.step, baseVersion: last.baseVersion } : null
      if (isCaptured(one)) {
        const rows = exportedRows(recorded.run, one, config, trainedIn)
        if (rows.length === 0) without.push(one.id)
        written += rows.length
        yield* rows
      } else {
        const exported = exportedTrajectory(recorded.run, one, config, trainedIn)
        written++
        yield format === 'atif' ? atifTrajectory(exported) : exported
      }
    }
    if (written === 0) throw noRow(without)
  }
  writeOut(
    out,
    jsonLines(objects(), one => one),
  )
  if (without.length > 0) process.stderr.write(`left out ${namesOf(without)}: ${whyNoRow}\n`)
  reportWritten(written, all.some(isCaptured) ? 'rows' : 'trajectories', out)
}

const whyNoRow = 'no call that is trained on has an answer that its client received'

const namesOf = ([first, ...others]: readonly TrajectoryId[]): string =>
  others.length === 0 ? `session ${first}` : `session ${first} and ${others.length} more`

/** Error for sessions without a training row. Thrown before the temporary file replaces --out, so --out stays as is. */
const noRow = (sessions: readonly TrajectoryId[]) =>
  usageError(
    'nothing_to_export',
    `${namesOf(sessions)} cannot be exported as training rows: ${whyNoRow}`,
    '`troupe replay show T` prints the calls of session T',
  )

async function writeTable(
  recorded: RecordedRun,
  all: readonly Trajectory[],
  tried: ReadonlyMap<TrajectoryId, TriedIn>,
  { format, table, out }: ExportOptions,
): Promise<void> {
  if (format === 'parquet' && out === undefined && process.stdout.isTTY) {
    throw usageError('no_out', 'a Parquet file is no text for a terminal', 'give --out FILE.parquet')
  }
  const config = await configOf(recorded)
  const rows: readonly Row[] = all.flatMap((one): readonly Row[] => {
    const last = tried.get(one.id)
    const trainedIn = last?.outcome === 'completed' ? { step: last.step, baseVersion: last.baseVersion } : null
    const exported = exportedTrajectory(recorded.run, one, config, trainedIn)
    return table === 'turns' ? turnRows(exported, one) : [trajectoryRow(exported, one)]
  })
  writeOut(out, format === 'rows' ? jsonLines(rows, row => row) : [await parquetOf(tables[table], rows)])
  reportWritten(rows.length, table, out)
}

function* jsonLines<T>(items: Iterable<T>, objectOf: (item: T) => object): Generator<string> {
  for (const item of items) yield `${jsonText(objectOf(item))}\n`
}

/** Reports on stderr what was written to a file; nothing when the output went to stdout. */
function reportWritten(count: number, what: string, out: string | undefined): void {
  if (out !== undefined) process.stderr.write(`${count} ${what} in ${out}\n`)
}
