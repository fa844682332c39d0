/**
 * `troupe replay entropy TARGET|--all` (a trajectory, a group or a step): prints the tokens at which the model was
 * least sure (arXiv 2508.20722 §5.4), and what share of them is among the first 10 tokens after a tool response; with
 * --html, a page of one trajectory with those tokens marked. Of a captured session it uses the tokens that are trained
 * on, and says how many others there are.
 */
import type { Command } from 'commander'
import { trajectoryPage } from '../../replay/exchange/trajectoryPage'
import { badEntropy, measuredTokens } from '../../replay/tokens/measuredTokens'
import type { LeftOut } from '../../replay/tokens/sampledPieces'
import { modelDirectories, type TokenTexts, tokenTexts } from '../../replay/tokens/tokenTexts'
import { afterToolTokens, type Measure, type TopTable, topOf, topTable } from '../../replay/tokens/topTokens'
import { resolveTarget, trajectoriesOf } from '../../replay/trajectories/resolveId'
import { readTrajectories } from '../../replay/trajectories/trajectory'
import { escapeForTerminal, painter, percent } from '../io/terminal'
import { readyOut, writeOut } from '../io/writeOut'
import { shareOf, wholeNumber } from '../options/readers'
import { type ReadOptions, withLog, withRun } from './runOptions'
import { jsonText } from './text/jsonText'

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
    .description(
      'print the tokens at which the model was least sure, and what share of them comes right after a tool response',
    )
    .option('--all', 'use every trajectory of the run')
    .option('--top <share>', "share of each trajectory's tokens that counts as its least sure", shareOf('over 0'), 0.2)
    .option('--limit <n>', 'print at most this many rows', wholeNumber(1, 100_000), 20)
    .option(
      '--with-model [dir]',
      "compute entropies by a forward pass of this model (without DIR: of the run's own weights on disk)",
    )
    .option('--device <device>', 'torch device for --with-model (default: cuda when available, else cpu)')
    .option('--html <file>', 'write an HTML page of the one selected trajectory, with its least sure tokens marked')
    .option('--json', 'print one JSON object')
  withRun(command).action(entropy)
}

async function entropy(target: string | undefined, options: EntropyOptions): Promise<void> {
  const { top, html, withModel: model, device } = options
  if (target === undefined && options.all !== true) {
    throw badEntropy('no trajectory, group or step was named', 'name one: troupe replay entropy T, or take all: --all')
  }
  await withLog(options, async recorded => {
    const wants = target === undefined ? () => true : resolveTarget(target, await trajectoriesOf(recorded))
    const all = (await readTrajectories(recorded, wants)).filter(one => one.texts.length > 0)
    if (all.length === 0) throw noTokens([])
    if (html !== undefined && all.length !== 1) {
      throw badEntropy(
        `--html writes a page of one trajectory, but ${all.length} were selected`,
        'name one: troupe replay entropy T --html FILE',
      )
    }
    readyOut(html)
    const by = model === undefined ? undefined : { model, ...(device === undefined ? {} : { device }) }
    const { measure, tokens, leftOut } = await measuredTokens(recorded, all, by)
    const left = leftOutLines(leftOut)
    const counted = tokens.filter(own => own.length > 0)
    if (counted.length === 0) throw noTokens(left)
    const texts = tokenTexts(await modelDirectories(recorded))
    const table = topTable(counted, top)
    if (html !== undefined) {
      const [own] = counted
      const marked = {
        ...{ top: topOf(own!, top), values: own!.map(t => t.value), turns: own!.map(t => t.turn) },
        measure,
      }
      writeOut(html, [trajectoryPage(recorded.run, all[0]!, texts, marked)])
    }
    const rows = table.rows.slice(0, options.limit)
    if (!options.json) {
      process.stdout.write(`${report({ ...table, rows }, texts, measure, top, left).join('\n')}\n`)
      return
    }
    const named = rows.map(row => ({ ...row, text: texts(row.token) ?? null }))
    const { run } = recorded
    process.stdout.write(`${jsonText({ run, measure, share: top, afterToolTokens, ...table, leftOut, rows: named })}\n`)
  })
}

const noTokens = (left: readonly string[]) =>
  badEntropy(
    ['the selected trajectories have no sampled tokens', ...left].join('; '),
    '`troupe replay ls` lists the trajectories of a run, `troupe replay show T` the calls of a session',
  )

/** Says how many sampled tokens of captured sessions the table leaves out, and why. */
const leftOutLines = ({ untrained, copied }: LeftOut): readonly string[] => [
  ...(untrained === 0
    ? []
    : [
        `not counted: ${untrained} tokens of captured calls that are not trained on (by their label, or no client got the answer)`,
      ]),
  ...(copied === 0
    ? []
    : [`not counted: ${copied} tokens of calls that a fork copied; they count in the session that was forked`]),
]

const paint = painter(process.stdout)

function report(
  table: TopTable,
  texts: TokenTexts,
  measure: Measure,
  top: number,
  left: readonly string[],
): readonly string[] {
  const { trajectories, sampled, rows } = table
  const what =
    measure === 'entropy'
      ? 'entropy of the distribution that each token was drawn from'
      : 'surprisal (-log p) of the drawn token; for its entropy give --with-model, or set engine.entropies in the recipe'
  const out = [
    `${trajectories} trajectories, ${sampled} sampled tokens; ${what}`,
    ...left,
    `mean ${table.meanValue.toFixed(3)} nats; of the top ${percent(top, 0)} of each trajectory (${table.top} tokens) ${table.meanTopValue.toFixed(3)}`,
    `right after a tool response (first ${afterToolTokens} tokens of a turn): ${percent(table.afterTool / Math.max(1, sampled))} of all tokens, ${percent(table.topAfterTool / Math.max(1, table.top))} of the top`,
    ...(table.top === 0 ? [`every token has the ${measure} 0, as after greedy sampling: none is less sure`] : []),
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
