/**
 * Sums over a step's turns: recomputed context tokens, preemptions, and the age of the policy that sampled the tokens.
 *
 * in   turn.asked | completed | interrupted of one step, ends of its rollouts    out  sums, and metrics made from them
 * Invariant: pure. An answer counts once, and only if it answers the latest attempt of the trajectory's latest turn.
 * A finished trajectory stays in the sums, and its entry in `open` is dropped.
 */
import { Map as Persistent } from 'immutable'
import type { Metrics, TrajectoryFact } from '../../messages/facts'
import type { TrajectoryId } from '../../messages/ids'

interface Open {
  /** Index, from 0, of the trajectory's turn that is under way; between two turns, that of the next one. */
  readonly turn: number
  readonly attempt: number
  readonly contextTokens: number
  /**
   * Number of the trajectory's tokens that engines computed in earlier turns or attempts, and could have kept cached.
   */
  readonly computed: number
}

export interface TurnSums {
  readonly open: Persistent<TrajectoryId, Open>
  readonly turns: number
  readonly sampled: number
  readonly recomputed: number
  readonly preemptions: number
  /** Sum, over the sampled tokens, of the number of the policy version that sampled each. */
  readonly versions: number
}

export const noTurns: TurnSums = {
  ...{ open: Persistent<TrajectoryId, Open>(), turns: 0, sampled: 0, recomputed: 0, preemptions: 0, versions: 0 },
}

type TurnFact = Extract<TrajectoryFact, { type: 'turn.asked' | 'turn.completed' | 'turn.interrupted' }>

export function addTurn(sums: TurnSums, fact: TurnFact): TurnSums {
  const before = sums.open.get(fact.trajectory)
  if (fact.type === 'turn.asked') {
    if (before !== undefined && fact.turn < before.turn) return sums
    const { turn, attempt, contextTokens } = fact
    const asked = { turn, attempt, contextTokens, computed: before?.computed ?? 0 }
    return { ...sums, open: sums.open.set(fact.trajectory, asked) }
  }
  if (before === undefined || fact.turn !== before.turn || fact.attempt !== before.attempt) return sums
  const computed = Math.max(before.computed, before.contextTokens + fact.tokens.length)
  const ofSegments = fact.segments.reduce(
    (sum, { start, end, policyVersion }) => sum + (end - start) * policyVersion,
    0,
  )
  // An interrupted attempt is over; its sampled tokens are kept and trained on.
  const sampled = sums.sampled + fact.tokens.length
  const versions = sums.versions + ofSegments
  if (fact.type === 'turn.interrupted') {
    const open = sums.open.set(fact.trajectory, { ...before, attempt: -1, computed })
    return { ...sums, open, sampled, versions }
  }
  return {
    open: sums.open.set(fact.trajectory, { ...before, turn: before.turn + 1, attempt: -1, computed }),
    turns: sums.turns + 1,
    sampled,
    recomputed: sums.recomputed + Math.max(0, before.computed - fact.cachedTokens),
    preemptions: sums.preemptions + fact.preemptions,
    versions,
  }
}

export const endTrajectory = (sums: TurnSums, trajectory: TrajectoryId): TurnSums =>
  sums.open.has(trajectory) ? { ...sums, open: sums.open.delete(trajectory) } : sums

/**
 * Returns the sums as metrics; no metric if no turn was completed or no token was sampled. `version`: the policy
 * version before the step's update.
 */
export function turnMetrics({ turns, sampled, recomputed, preemptions, versions }: TurnSums, version: number): Metrics {
  if (turns === 0 || sampled === 0) return {}
  return {
    preemptionsPerTurn: preemptions / turns,
    recomputedShare: recomputed / sampled,
    staleness: Math.max(0, version - versions / sampled),
  }
}
