/**
 * Explains what a run, group, trajectory or turn waits for: since when, and on whom; or how it ended.
 *
 * in   evidence, a subject, the circumstances        out  outcome and waits, as data
 * Invariant: pure. There are no waits once the run has finished. The outcome is `lost` when the answer is missing and
 * nothing can give it any more until the run is resumed.
 */
import type { GroupId, TrajectoryId } from '../../messages/ids'
import { replayError } from '../replayError'
import { type Answerers, answerers } from './answerers'
import { owedBy, rolloutWaits, type Wait } from './chains'
import type { Circumstances, Evidence, LastEvent } from './evidence'
import { groupOutcome, type Outcome, type RunStanding, rolloutOutcome, runStanding, turnOutcome } from './outcome'
import { decisionWaits, runWaits } from './runWaits'

export type Subject =
  | { readonly kind: 'run' }
  | { readonly kind: 'group'; readonly group: GroupId }
  | { readonly kind: 'trajectory'; readonly trajectory: TrajectoryId }
  | { readonly kind: 'turn'; readonly trajectory: TrajectoryId; readonly turn: number }

/** Waits for the same thing, owed by the same part in the same state, summed to one. */
export interface SummedWait {
  readonly count: number
  readonly oldest: Wait
}

export interface Explanation {
  readonly subject: Subject
  /** Time of the question, ms since 1970: with `--at`, that of the log's latest record. */
  readonly asOf: number
  /** Standing of the run: running, finished, stopped, crashed or unknown. */
  readonly run: RunStanding
  readonly outcome: Outcome
  /**
   * Empty when nothing is awaited. For a run, waits that hold up everything come first, then the longest; for a group,
   * in the order of its members.
   */
  readonly waits: readonly SummedWait[]
  /** Outcome of each member of a group; empty for other subjects. */
  readonly members: readonly { readonly trajectory: TrajectoryId; readonly outcome: Outcome }[]
  /** Latest event of the subject. */
  readonly last: LastEvent | null
}

/** @throws TroupeError replay.no_match when the evidence has no such group, trajectory or turn */
export function explain(evidence: Evidence, subject: Subject, around: Circumstances): Explanation {
  const who = answerers(evidence, around)
  const run = runStanding(evidence, around.standings)
  const answer = (outcome: Outcome, waits: readonly Wait[], last: LastEvent | null): Explanation => ({
    ...{ subject, asOf: around.now, run, outcome, waits: run === 'finished' ? [] : summed(waits), members: [], last },
  })
  switch (subject.kind) {
    case 'run':
      return answer(ofRun(evidence, run), runWaits(evidence, who, run, around), evidence.last)
    case 'group':
      return ofGroup(evidence, who, subject.group, run, answer)
    case 'trajectory': {
      const one = known(evidence.rollouts.get(subject.trajectory), subject.trajectory)
      const own = rolloutWaits(evidence, who, subject.trajectory)
      return answer(rolloutOutcome(one, run), own, one.reward?.event ?? one.last)
    }
    case 'turn': {
      const one = known(evidence.rollouts.get(subject.trajectory), subject.trajectory)
      const { turn } = one.rollout
      if (subject.turn > turn) {
        throw replayError(
          'no_match',
          `${subject.trajectory} has turns 0 to ${turn}, and no turn ${subject.turn}`,
          `\`troupe replay show ${subject.trajectory}\` prints the turns`,
        )
      }
      const waits = subject.turn < turn ? [] : rolloutWaits(evidence, who, subject.trajectory)
      const outcome = turnOutcome(one, subject.turn, run)
      const isOver = outcome.kind !== 'waiting' && outcome.kind !== 'lost'
      return answer(outcome, isOver ? [] : waits, one.turns.get(subject.turn)?.event ?? one.last)
    }
  }
}

function ofRun({ finished }: Evidence, run: RunStanding): Outcome {
  if (finished !== null) {
    const { outcome, reason, steps } = finished.value
    const why = `${outcome} after ${steps} steps: ${reason}`
    return outcome === 'failed' ? { kind: 'failed', by: 'run', why } : { kind: 'answered', why }
  }
  if (run === 'crashed') return { kind: 'lost', why: 'the process of the run is gone, killed or crashed' }
  return run === 'stopped' ? { kind: 'lost', why: 'the process of the run ended before the run' } : { kind: 'waiting' }
}

function ofGroup(
  evidence: Evidence,
  who: Answerers,
  id: GroupId,
  run: RunStanding,
  answer: (outcome: Outcome, waits: readonly Wait[], last: LastEvent | null) => Explanation,
): Explanation {
  const group = known(evidence.groups.get(id), id)
  const waits = [...group.members.flatMap(one => rolloutWaits(evidence, who, one)), ...decisionWaits(evidence, who, id)]
  const last = group.decision?.event ?? group.closed?.event ?? group.requested
  const members = group.members.map(trajectory => ({
    trajectory,
    outcome: rolloutOutcome(evidence.rollouts.get(trajectory)!, run),
  }))
  return { ...answer(groupOutcome(group, run), group.decision === null ? waits : [], last), members }
}

/**
 * Sums up the waits for the same thing, owed by the same part in the same state. Keeps the order of first occurrence.
 */
function summed(waits: readonly Wait[]): readonly SummedWait[] {
  const sums = new Map<string, { count: number; oldest: Wait }>()
  for (const one of waits) {
    const { kind, name } = owedBy(one)
    const key = JSON.stringify([one.for, kind, name, one.state])
    const before = sums.get(key)
    if (before === undefined) sums.set(key, { count: 1, oldest: one })
    else {
      before.count++
      if (one.since < before.oldest.since) before.oldest = one
    }
  }
  return [...sums.values()]
}

function known<T>(found: T | undefined, id: string): T {
  if (found !== undefined) return found
  throw replayError('no_match', `the run has no group or trajectory '${id}'`, '`troupe replay ls` lists the ids')
}
