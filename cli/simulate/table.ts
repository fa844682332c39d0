/**
 * Formats the results of simulations as a table, one row per policy; below it the least time that any schedule needs.
 */
import type { LowerBound, SimulationResult } from '../../kernels'

type Column = readonly [title: string, of: (result: SimulationResult) => string]

const seconds = (ms: number): string => (ms / 1000).toFixed(ms < 9_950 ? 2 : 1)
const share = (value: number): string => `${(100 * value).toFixed(1)} %`

export function tableOf(results: readonly SimulationResult[], bound: LowerBound): string {
  const best = Math.min(...results.map(result => result.makespanMs))
  const columns: readonly Column[] = [
    ['policy', result => result.policy],
    ['makespan s', result => seconds(result.makespanMs)],
    ['× best', result => (result.makespanMs / best).toFixed(2)],
    ['first token s', result => seconds(result.ttftMsMean)],
    ['ms a token', result => result.tpotMsMean.toFixed(1)],
    ['tokens/s', result => result.tokensPerSecond.toFixed(0)],
    ['preempted', result => String(result.preemptions)],
    ['recomputed', result => share(result.recomputedTokens / result.generatedTokens)],
    ['idle', result => share(result.idleShare)],
    ['KV mean', result => share(result.kvMeanShare)],
    ['KV peak', result => share(result.kvPeakShare)],
    ['running', result => result.runningMean.toFixed(1)],
    ['moves', result => String(result.moves)],
  ]
  const rows = [columns.map(([title]) => title), ...results.map(result => columns.map(([, of]) => of(result)))]
  const widths = columns.map((_, at) => Math.max(...rows.map(row => row[at]!.length)))
  const lines = rows.map(row =>
    row.map((cell, at) => (at === 0 ? cell.padEnd(widths[0]!) : cell.padStart(widths[at]!))),
  )
  const [first] = results
  return [
    `${first!.trajectories} trajectories, ${first!.turns} turns, ${first!.generatedTokens} tokens on ${first!.engines} engines`,
    ...lines.map(cells => cells.join('  ')),
    `no schedule is done before ${seconds(bound.ms)} s (longest chain ${seconds(bound.chainMs)} s, work ${seconds(bound.workMs)} s)`,
    'recomputed: share of the generated tokens; first token: since the turn was asked for',
    '',
  ].join('\n')
}
