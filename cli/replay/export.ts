/**
 * `troupe replay export`: trajectories of a run for others: JSON lines, pages, a fixture, or data to fine-tune on.
 *
 * in   a trajectory, a group, or all        out  to stdout, or to --out (pages of several trajectories: a directory)
 */
import { join } from 'node:path'
import { type Command, Option } from 'commander'
import { groupOf, type TrajectoryId } from '../../messages/ids'
import { callsOf, exportedTrajectory, type TrainedIn, withoutEnd } from '../../replay/exchange/exportedTrajectory'
import { fixtureOf, packFixture } from '../../replay/exchange/fixture'
import { trajectoryPage } from '../../replay/exchange/trajectoryPage'
import { type TriedIn, triedSteps } from '../../replay/learning/learnerLog'
import { configOf } from '../../replay/log/recordedConfig'
import type { RecordedRun } from '../../replay/log/recordedRun'
import { modelDirectories, tokenTexts } from '../../replay/tokens/tokenTexts'
import { resolveTarget, trajectoriesOf } from '../../replay/trajectories/resolveId'
import { readTrajectories, type Trajectory } from '../../replay/trajectories/trajectory'
import { TroupeError } from '../../runtime/errors'
import { makeOut, writeOut } from '../io/writeOut'
import { finiteNumber, wholeNumber } from '../options/readers'
import { jsonText } from './jsonText'
import { openRecorded, type ReadOptions, reportFaults, withRun } from './runOptions'

interface ExportOptions extends ReadOptions {
  readonly format: 'jsonl' | 'html' | 'fixture' | 'sft'
  readonly all?: boolean
  readonly out?: string
  readonly minReward: number
  readonly maxToolErrors: number
  readonly perTask: number
  readonly kept?: boolean
}

export function registerExport(replay: Command): void {
  const command = replay
    .command('export [target]')
    .description('trajectories for others: every id and logprob as JSON lines, a page, a fixture for tests, SFT data')
    .addOption(
      new Option('--format <format>', 'what to write').choices(['jsonl', 'html', 'fixture', 'sft']).default('jsonl'),
    )
    .option('--all', 'every trajectory of the run')
    .option('--out <path>', 'a file; for pages of several trajectories a directory (default: stdout)')
    .option('--kept', 'only those that were trained on')
    .option('--min-reward <r>', 'sft: with at least this reward', finiteNumber, 1)
    .option('--max-tool-errors <n>', 'sft: with at most so many failed calls', wholeNumber(0, 2 ** 31), 0)
    .option('--per-task <n>', 'sft: at most so many of a task, the shortest', wholeNumber(1, 2 ** 31), 1)
  withRun(command).action(exportRun)
}

async function exportRun(target: string | undefined, options: ExportOptions): Promise<void> {
  if (target === undefined && options.all !== true) {
    throw refusal('cli.no_target', 'no trajectory and no group was named', 'troupe replay export T, or --all')
  }
  const recorded = await openRecorded(options)
  try {
    const wants = target === undefined ? () => true : resolveTarget(target, await trajectoriesOf(recorded))
    if (options.format === 'fixture') {
      // A group is decided together: the fixture of a trajectory holds its whole group.
      const groups = new Set((await trajectoriesOf(recorded)).filter(wants).map(groupOf))
      const whole = target === undefined
      writeOut(options.out, [packFixture(await fixtureOf(recorded, whole ? undefined : g => groups.has(g as never)))])
      say(groups.size, 'groups', options.out)
      reportFaults(recorded)
      return
    }
    const tried = await triedSteps(recorded)
    const all = (await readTrajectories(recorded, wants)).filter(
      c => options.kept !== true || tried.get(c.id)?.outcome === 'completed',
    )
    if (all.length === 0) throw refusal('cli.nothing_to_export', 'no trajectory fits', '`troupe replay ls` lists them')
    if (options.format === 'html') await pages(recorded, all, options.out)
    else await lines(recorded, all, tried, options)
    reportFaults(recorded)
  } finally {
    await recorded.close()
  }
}

async function pages(recorded: RecordedRun, all: readonly Trajectory[], out: string | undefined): Promise<void> {
  const texts = tokenTexts(await modelDirectories(recorded))
  if (all.length === 1) return writeOut(out, [trajectoryPage(recorded.run, all[0]!, texts)])
  if (out === undefined) {
    throw refusal('cli.no_out', `${all.length} pages need a directory`, 'give --out DIR, or one trajectory')
  }
  makeOut(out)
  for (const trajectory of all) {
    const name = `${trajectory.id.replaceAll('/', '_')}.html`
    writeOut(join(out, name), [trajectoryPage(recorded.run, trajectory, texts)])
  }
  say(all.length, 'pages', out)
}

async function lines(
  recorded: RecordedRun,
  all: readonly Trajectory[],
  tried: ReadonlyMap<TrajectoryId, TriedIn>,
  options: ExportOptions,
): Promise<void> {
  const config = await configOf(recorded)
  const made = options.format === 'sft' ? sftLines(all, options) : undefined
  if (made?.length === 0) process.stderr.write('no trajectory is good enough; --min-reward, --max-tool-errors\n')
  const lineOf = (c: Trajectory) => exportedTrajectory(recorded.run, c, config, trainedIn(tried.get(c.id)))
  writeOut(options.out, made === undefined ? jsonLines(all, lineOf) : jsonLines(made, line => line))
  say(made?.length ?? all.length, made === undefined ? 'trajectories' : 'conversations', options.out)
}

function* jsonLines<T>(items: readonly T[], lineOf: (item: T) => object): Generator<string> {
  for (const item of items) yield `${jsonText(lineOf(item))}\n`
}

/** Of a file: on stdout it is seen. */
function say(count: number, what: string, out: string | undefined): void {
  if (out !== undefined) process.stderr.write(`${count} ${what} in ${out}\n`)
}

const trainedIn = (tried: TriedIn | undefined): TrainedIn | null =>
  tried?.outcome === 'completed' ? { step: tried.step, baseVersion: tried.baseVersion } : null

/** The best of each task as conversations, in the words that the model was shown and wrote: calls stay in the text. */
function sftLines(all: readonly Trajectory[], options: ExportOptions) {
  const good = all.filter(
    c =>
      // What is held out to judge by is not learned from.
      c.request.purpose !== 'eval' &&
      c.finished?.outcome === 'answered' &&
      (c.reward?.reward ?? Number.NEGATIVE_INFINITY) >= options.minReward &&
      c.finished.toolErrors <= options.maxToolErrors,
  )
  const byTask = new Map<string, Trajectory[]>()
  for (const c of good) byTask.set(c.request.task.id, [...(byTask.get(c.request.task.id) ?? []), c])
  const seen = new Set<string>()
  return [...byTask.values()].flatMap(of =>
    of
      .sort((a, b) => a.finished!.sampledTokens - b.finished!.sampledTokens)
      .map(c => ({
        messages: conversation(c),
        trajectory: c.id,
        task: c.request.task.id,
        reward: c.reward!.reward,
      }))
      .filter(({ messages }) => {
        const text = JSON.stringify(messages)
        if (seen.has(text)) return false
        seen.add(text)
        return true
      })
      .slice(0, options.perTask),
  )
}

function conversation(trajectory: Trajectory) {
  const calls = callsOf(trajectory)
  const turns = trajectory.texts.flatMap((text, turn) => [
    { role: 'assistant', content: withoutEnd(text) },
    ...calls.filter(c => c.turn === turn).map(c => ({ role: 'tool', content: c.text })),
  ])
  return [...trajectory.request.task.messages, ...turns]
}

const refusal = (code: string, message: string, hint: string) =>
  new TroupeError(code, { boundary: 'cli', retriable: false, message, hint })
