/**
 * Reads the results of a run of forks, and estimates each turn's value: the mean reward of the forks that began at it.
 *
 * in   a recorded run that `runForks` wrote
 * out  a result for each fork; a mean with its standard error for each turn
 */
import { standardError } from '../../kernels'
import { factsOf, type RecordedRun } from '../log/recordedRun'
import { readTrajectories } from '../trajectories/trajectory'

export interface ForkResult {
  readonly trajectory: string
  /** First turn that the fork does not share with its parent. */
  readonly turn: number
  /** Outcome of the fork: answered, truncated or failed; running while it has not ended. */
  readonly outcome: string
  readonly reward: number | null
  /** Number of finished turns, the shared ones included. */
  readonly turns: number
  readonly answer: string
}

/** Estimated value of the state before a turn: the mean reward of the forks that began at this turn. */
export interface TurnValue {
  readonly turn: number
  readonly forks: number
  /** Number of forks that have a reward. */
  readonly rewarded: number
  readonly mean: number | null
  /** Standard error of the mean; null with fewer than two rewards. */
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

/** Computes the value of `turn` from `results`, the results of the forks at this turn. */
export function turnValue(turn: number, results: readonly ForkResult[]): TurnValue {
  const rewards = results.flatMap(r => (r.reward === null ? [] : [r.reward]))
  const n = rewards.length
  const mean = n === 0 ? null : rewards.reduce((a, b) => a + b, 0) / n
  return {
    turn,
    forks: results.length,
    rewarded: n,
    mean,
    standardError: standardError(rewards),
  }
}
