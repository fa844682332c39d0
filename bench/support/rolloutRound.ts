/**
 * A round of rollouts of either arm of a benchmark (through Troupe, or without it): its turns, and the figures computed
 * from them.
 *
 * in   recorded facts, or the turns of a client without Troupe        out  RoundFigures; recordings to repeat
 * Invariant: a round counts only when every turn has the length that its trace states, and every rollout that Troupe
 * made was answered.
 */
import type { BareRollout, DoneTurn } from './bareRollouts'
import type { RecordedRollout } from './recordedStep'
import { indexOf, type Trace } from './traces'

export type Turns = readonly (readonly DoneTurn[])[]

export interface RoundFigures {
  readonly tokensPerSecond: number
  /**
   * Mean milliseconds between two turns of a trajectory, minus the tool's delay: the time that neither model nor tool
   * used.
   */
  readonly gapMs: number
  /** Mean number of sequences that the engine ran at once. */
  readonly running: number
  /** Mean number of context tokens per turn whose keys the engine had in its KV cache already. */
  readonly cachedTokensPerTurn: number
}

/**
 * Sorts a step's rollouts by their traces. @throws if a rollout was not answered, because then the arms did different
 * work
 */
export function inOrder(step: readonly RecordedRollout[], groupSize: number): readonly RecordedRollout[] {
  for (const { facts } of step) checkAnswered(facts)
  return [...step].sort((a, b) => indexOf(a.trajectory, groupSize) - indexOf(b.trajectory, groupSize))
}

/**
 * Computes the figures of a round.
 * @param ms duration of the round
 */
export function figuresOf(turns: Turns, plan: readonly Trace[], ms: number): RoundFigures {
  const all = turns.flat()
  for (const [k, { turns: wanted }] of plan.entries()) {
    const did = turns[k]!.map(turn => turn.tokens).join()
    const planned = wanted.map(turn => turn.newTokens).join()
    if (did !== planned) throw new Error(`rollout ${k} sampled ${did} tokens in its turns; its trace states ${planned}`)
  }
  const gaps = turns.flatMap((done, k) =>
    done.slice(1).map((turn, i) => turn.timing.startedAt - done[i]!.timing.endedAt - plan[k]!.turns[i]!.toolMs),
  )
  const busyMs = all.reduce((sum, { timing }) => sum + timing.endedAt - timing.startedAt, 0)
  return {
    tokensPerSecond: (all.reduce((sum, turn) => sum + turn.tokens, 0) / ms) * 1000,
    gapMs: gaps.reduce((a, b) => a + b, 0) / gaps.length,
    running: busyMs / ms,
    cachedTokensPerTurn: all.reduce((sum, turn) => sum + turn.cachedTokens, 0) / all.length,
  }
}

export function turnsOf({ facts }: RecordedRollout): DoneTurn[] {
  return facts.flatMap(fact =>
    fact.type === 'turn.completed'
      ? [{ tokens: fact.tokens.length, cachedTokens: fact.cachedTokens, timing: fact.timing }]
      : [],
  )
}

/** Milliseconds from the request of the first turn to the end of the last rollout. */
export function spanOf(rollouts: readonly RecordedRollout[]): number {
  const facts = rollouts.flatMap(rollout => rollout.facts)
  const asked = facts.flatMap(fact => (fact.type === 'turn.asked' ? [fact.at] : []))
  const finished = facts.flatMap(fact => (fact.type === 'rollout.finished' ? [fact.at] : []))
  return finished.reduce((a, b) => Math.max(a, b)) - asked.reduce((a, b) => Math.min(a, b))
}

/** Tokens of the prompt and of the tool answers, with which another client can repeat the rollout. */
export function recordingOf({ trajectory, facts }: RecordedRollout, trace: Trace): BareRollout {
  const prompt = facts.flatMap(fact => (fact.type === 'rollout.requested' ? [fact.tokens] : []))[0]!
  const responses = facts.flatMap(fact => (fact.type === 'context.appended' ? [fact.tokens] : []))
  if (responses.length !== trace.turns.length - 1)
    throw new Error(`${trajectory} has ${responses.length} tool answers; its trace states ${trace.turns.length - 1}`)
  return { trace, prompt, responses }
}

function checkAnswered(facts: RecordedRollout['facts']): void {
  for (const fact of facts) {
    if (fact.type !== 'rollout.finished' || fact.outcome === 'answered') continue
    throw new Error(`rollout ${fact.trajectory} ended with outcome ${fact.outcome}, expected answered: ${fact.reason}`)
  }
}
