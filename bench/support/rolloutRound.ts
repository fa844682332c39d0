/**
 * A round of rollouts, as either arm of a benchmark did it: its turns, and what they say of speed.
 *
 * in   recorded facts, or the turns of a client without Troupe        out  tokens a second, gaps, what ran at once
 * Invariant: a round counts only where every turn has the length that its trace says, and every rollout was answered.
 */
import { memberOf } from '../../messages/ids'
import type { BareRollout, DoneTurn } from './bareRollouts'
import type { RecordedRollout } from './recordedStep'
import { indexOf, type Trace } from './traces'

export type Turns = readonly (readonly DoneTurn[])[]

export interface RoundFigures {
  readonly tokensPerSecond: number
  /** Between two turns of a trajectory, less the tool's delay: everything that is neither model nor tool. */
  readonly gapMs: number
  /** Sequences that the engine had under way, on average. */
  readonly running: number
  /** Tokens whose keys and values were still there from the turn before, a turn. */
  readonly cachedTokensPerTurn: number
}

/** A step's rollouts in the order of their traces. @throws where one was not answered: it did not do what another arm does */
export function inOrder(step: readonly RecordedRollout[], groupSize: number): readonly RecordedRollout[] {
  for (const { facts } of step) checkAnswered(facts)
  return [...step].sort((a, b) => indexOf(a.trajectory, groupSize) - indexOf(b.trajectory, groupSize))
}

/** @param ms what the round lasted */
export function figuresOf(turns: Turns, plan: readonly Trace[], ms: number): RoundFigures {
  const all = turns.flat()
  for (const [k, { turns: wanted }] of plan.entries()) {
    const did = turns[k]!.map(turn => turn.tokens).join()
    const planned = wanted.map(turn => turn.newTokens).join()
    if (did !== planned)
      throw new Error(`rollout ${k} sampled ${did} tokens in its turns, and was to sample ${planned}`)
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

/** From the first turn asked for to the last rollout finished, ms. */
export function spanOf(rollouts: readonly RecordedRollout[]): number {
  const facts = rollouts.flatMap(rollout => rollout.facts)
  const asked = facts.flatMap(fact => (fact.type === 'turn.asked' ? [fact.at] : []))
  const finished = facts.flatMap(fact => (fact.type === 'rollout.finished' ? [fact.at] : []))
  return finished.reduce((a, b) => Math.max(a, b)) - asked.reduce((a, b) => Math.min(a, b))
}

/** What another client needs to do the same: the prompt and the tools' answers, in tokens. */
export function recordingOf({ trajectory, facts }: RecordedRollout, trace: Trace): BareRollout {
  const prompt = facts.flatMap(fact => (fact.type === 'rollout.requested' ? [fact.tokens] : []))[0]!
  const responses = facts.flatMap(fact => (fact.type === 'context.appended' ? [fact.tokens] : []))
  if (responses.length !== trace.turns.length - 1) throw new Error(`member ${memberOf(trajectory)} lacks a tool answer`)
  return { trace, prompt, responses }
}

function checkAnswered(facts: RecordedRollout['facts']): void {
  for (const fact of facts) {
    if (fact.type !== 'rollout.finished' || fact.outcome === 'answered') continue
    throw new Error(`${fact.trajectory} ended ${fact.outcome}: ${fact.reason}`)
  }
}
