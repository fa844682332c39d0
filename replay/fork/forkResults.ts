/**
 * The results of a run of forks, and the value of each turn: the mean reward of what came of it.
 *
 * in   a recorded run that `runForks` wrote        out  one result a fork; a mean with its standard error a turn
 */
import { factsOf, type RecordedRun } from '../log/recordedRun'
import { readTrajectories } from '../trajectories/trajectory'

export interface ForkResult {
  readonly trajectory: string
  /** The first turn that is not shared with the parent. */
  readonly turn: number
  /** answered, truncated, failed or running. */
  readonly outcome: string
  readonly reward: number | null
  /** Finished turns, the shared ones included. */
  readonly turns: number
  readonly answer: string
}

/** The value of what came before a turn: what the forks at this turn earned. */
export interface TurnValue {
  readonly turn: number
  readonly forks: number
  /** Forks that have a reward. */
  readonly rewarded: number
  readonly mean: number | null
  /** Of the mean; null below two rewards. */
  readonly standardError: number | null
}

export async function forkResults(recorded: RecordedRun): Promise<readonly ForkResult[]> {
  const forked = await factsOf(recorded, 'runs', ['trajectory.forked'])
  const turnOf = new Map(forked.map(f => [f.child, f.turn]))
  return (await readTrajectories(recorded, () => true)).map(one => ({
    trajectory: one.id,
    turn: turnOf.get(one.id) ?? 0,
    outcome: one.finished?.outcome ?? 'running',
    reward: one.reward?.reward ?? null,
    turns: one.texts.length,
    answer: one.reward?.answer ?? '',
  }))
}

/** `results`: those of the forks at this turn. */
export function turnValue(turn: number, results: readonly ForkResult[]): TurnValue {
  const rewards = results.flatMap(r => (r.reward === null ? [] : [r.reward]))
  const n = rewards.length
  const mean = n === 0 ? null : rewards.reduce((a, b) => a + b, 0) / n
  const spread = mean === null || n < 2 ? null : rewards.reduce((sum, r) => sum + (r - mean) ** 2, 0) / (n - 1)
  return {
    turn,
    forks: results.length,
    rewarded: n,
    mean,
    standardError: spread === null ? null : Math.sqrt(spread / n),
  }
}
