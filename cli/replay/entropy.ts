/**
 * `troupe replay entropy T|G|--all`: where the model was least sure, and on what words (arXiv 2508.20722 §5.4).
 *
 * in   recorded trajectories; with --with-model their entropies under weights that are on this machine
 * out  the tokens that are most often among the top of their trajectory, and how many of those follow a tool response; with
 *      --html a page of one trajectory with those tokens marked
 */
import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { Command } from 'commander'
import { trajectoryPage } from '../../replay/exchange/trajectoryPage'
import { nearestWeights, sampledVersions } from '../../replay/learning/publishedWeights'
import { configOf } from '../../replay/log/recordedConfig'
import type { RecordedRun } from '../../replay/log/recordedRun'
import { modelEntropies } from '../../replay/tokens/modelEntropies'
import { modelDirectories, type TokenTexts, tokenTexts } from '../../replay/tokens/tokenTexts'
import {
  afterToolTokens,
  type Measure,
  recordedEntropies,
  type SampledToken,
  sampledTokens,
  type TopTable,
  topOf,
  topTable,
} from '../../replay/tokens/topTokens'
import { resolveTarget, trajectoriesOf } from '../../replay/trajectories/resolveId'
import { readTrajectories, type Trajectory } from '../../replay/trajectories/trajectory'
import { TroupeError } from '../../runtime/errors'
import { escapeForTerminal, painter, percent } from '../io/terminal'
import { readyOut, writeOut } from '../io/writeOut'
import { shareOf, wholeNumber } from '../options/readers'
import { jsonText } from './jsonText'
import { openRecorded, type ReadOptions, reportFaults, withRun } from './runOptions'

interface EntropyOptions extends ReadOptions {
  readonly all?: boolean
  readonly json?: boolean
  readonly top: number
  readonly limit: number
  readonly withModel?: string | true
  readonly device?: string
  readonly html?: string
}

export function registerEntropy(replay: Command): void {
  const command = replay
    .command('entropy [target]')
    .description('the tokens at which the model was least sure: which they are, and how many follow a tool response')
    .option('--all', 'every trajectory of the run')
    .option('--top <share>', 'of the tokens of each trajectory', shareOf('over 0'), 0.2)
    .option('--limit <n>', 'rows of the table', wholeNumber(1, 100_000), 20)
    .option(
      '--with-model [dir]',
      'entropies by a forward pass: of this model, or of the weights of the run that are kept',
    )
    .option('--device <device>', 'a torch device for that')
    .option('--html <file>', 'a page of the one trajectory, with those tokens marked')
    .option('--json', 'one JSON object')
  withRun(command).action(entropy)
}

async function entropy(target: string | undefined, options: EntropyOptions): Promise<void> {
  if (target === undefined && options.all !== true) {
    throw refusal('no trajectory and no group was named', 'troupe replay entropy T, or --all')
  }
  const recorded = await openRecorded(options)
  try {
    const wants = target === undefined ? () => true : resolveTarget(target, await trajectoriesOf(recorded))
    const all = (await readTrajectories(recorded, wants)).filter(c => c.texts.length > 0)
    if (all.length === 0) throw refusal('nothing was sampled there', '`troupe replay ls` lists trajectories')
    if (options.html !== undefined && all.length !== 1) {
      throw refusal(`a page is of one trajectory, and ${all.length} were named`, 'troupe replay entropy T --html FILE')
    }
    readyOut(options.html)
    const values = options.withModel === undefined ? recordedOf(all) : await entropies(recorded, all, options)
    const measure: Measure = values === undefined ? 'surprisal' : 'entropy'
    const tokens = all.map(c => sampledTokens(c, values?.get(c.id)))
    const texts = tokenTexts(await modelDirectories(recorded))
    const table = topTable(tokens, options.top)
    if (options.html !== undefined) page(recorded, all[0]!, texts, tokens[0]!, options, measure)
    const rows = table.rows.slice(0, options.limit)
    if (options.json) {
      const named = rows.map(row => ({ ...row, text: texts(row.token) ?? null }))
      const { run } = recorded
      process.stdout.write(
        `${jsonText({ run, measure, share: options.top, afterToolTokens, ...table, rows: named })}\n`,
      )
    } else process.stdout.write(`${report({ ...table, rows }, texts, measure, options.top).join('\n')}\n`)
    reportFaults(recorded)
  } finally {
    await recorded.close()
  }
}

/** Where the engine recorded those of all; a table of two measures would say nothing. */
function recordedOf(all: readonly Trajectory[]): ReadonlyMap<string, readonly number[]> | undefined {
  const values = all.map(trajectory => [trajectory.id, recordedEntropies(trajectory)] as const)
  const known = values.flatMap(([id, of]) => (of === undefined ? [] : [[id, of] as const]))
  return known.length === all.length ? new Map(known) : undefined
}

/** By the model that was given, or for each token by the kept weights nearest to those that sampled it. */
async function entropies(recorded: RecordedRun, all: readonly Trajectory[], options: EntropyOptions) {
  const { temperature } = (await configOf(recorded)).rollout.sampling
  if (temperature <= 0)
    throw refusal('the run sampled greedily: its distributions have no entropy', 'leave --with-model out')
  if (typeof options.withModel === 'string') {
    const directory = resolve(options.withModel)
    if (!existsSync(join(directory, 'config.json'))) throw refusal(`${directory} holds no config.json`, 'name a model')
    return modelEntropies(all, directory, temperature, options.device)
  }
  const values = new Map<string, number[]>(all.map(c => [c.id, []]))
  const sampledBy = new Map(all.map(c => [c.id as string, sampledVersions(c)]))
  for (const [directory, versions] of await directoriesOf(recorded, new Set([...sampledBy.values()].flat()))) {
    const some = all.filter(c => sampledBy.get(c.id)!.some(version => versions.has(version)))
    for (const [id, found] of await modelEntropies(some, directory, temperature, options.device)) {
      sampledBy.get(id)!.forEach((version, i) => {
        if (versions.has(version)) values.get(id)![i] = found[i]!
      })
    }
  }
  return values
}

/** The kept weights nearest to each version, and for which versions they stand. */
async function directoriesOf(recorded: RecordedRun, versions: ReadonlySet<number>) {
  const directories = new Map<string, Set<number>>()
  for (const version of versions) {
    const { directory } = await nearestWeights(recorded, version)
    directories.set(directory, (directories.get(directory) ?? new Set()).add(version))
  }
  return directories
}

function page(
  recorded: RecordedRun,
  trajectory: Trajectory,
  texts: TokenTexts,
  tokens: readonly SampledToken[],
  options: EntropyOptions,
  measure: Measure,
): void {
  const marked = { top: topOf(tokens, options.top), values: tokens.map(t => t.value), measure }
  writeOut(options.html, [trajectoryPage(recorded.run, trajectory, texts, marked)])
}

const paint = painter(process.stdout)

function report(table: TopTable, texts: TokenTexts, measure: Measure, top: number): string[] {
  const { trajectories, sampled, rows } = table
  const what =
    measure === 'entropy'
      ? 'entropy of the distribution that each token was drawn from'
      : 'surprisal of the token that was drawn, -log p; not its entropy, for which there are --with-model and engine.entropies'
  const out = [
    `${trajectories} trajectories, ${sampled} sampled tokens; ${what}`,
    `mean ${table.meanValue.toFixed(3)} nats; of the top ${percent(top, 0)} of each trajectory (${table.top} tokens) ${table.meanTopValue.toFixed(3)}`,
    `right after a tool response (first ${afterToolTokens} tokens of a turn): ${percent(table.afterTool / Math.max(1, sampled))} of all tokens, ${percent(table.topAfterTool / Math.max(1, table.top))} of the top`,
    '',
    'at the top  of sampled    mean  after tool  token',
  ]
  for (const row of rows) {
    const text = texts(row.token)
    const name = text === undefined ? String(row.token) : JSON.stringify(escapeForTerminal(text))
    const cells = [
      String(row.top).padStart(10),
      percent(row.top / row.sampled, 0).padStart(10),
      row.meanValue.toFixed(3).padStart(7),
      percent(row.afterTool / row.top, 0).padStart(10),
    ]
    out.push(`${cells.join('  ')}  ${paint('bold', name)}`)
  }
  return out
}

const refusal = (message: string, hint: string) =>
  new TroupeError('cli.bad_entropy', { boundary: 'cli', retriable: false, message, hint })
