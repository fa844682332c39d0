/**
 * What a run's log comes to, counted by the fold itself: which turns, rollouts and steps count, how often, and what does not.
 *
 * in   a run's journal        out  counts, and by name what was counted twice, lost, or out of order
 * It is read after the run, whatever died during it; a stray answer or a fenced decision is ignored, not an error.
 */

import { curriculumAfter, isReplaced, isStale, noCurriculum } from '../../actors/ownership/fencing'
import { coordinator } from '../../actors/rollouts/coordinator'
import type { Fact } from '../../messages/facts'
import type { TrajectoryId } from '../../messages/ids'
import type { Entry, Journal } from '../../runtime/journal/journal'

export interface Audit {
  readonly turnsCounted: number
  /** Answers to an attempt that was not the last one asked for, or said twice. */
  readonly turnsIgnored: number
  /** `group/member#turn`, of turns that the fold took more than once. */
  readonly turnsTwice: readonly string[]
  readonly rollouts: number
  /** Asked for, and never counted as finished. */
  readonly lost: readonly TrajectoryId[]
  /** Ended by a fault of ours. */
  readonly failed: number
  /** Decisions of owners, and of learners, that had been fenced. */
  readonly fenced: number
  /** Steps that count as completed or rejected, in the log's order. */
  readonly steps: readonly number[]
  /** `step.started` that count, by step: each has one batch. */
  readonly started: readonly number[]
  readonly deadLetters: number
}

export async function everything(journal: Journal, topic: Entry['topic'], partition: number): Promise<Entry[]> {
  const { oldest, next } = await journal.offsets(topic, partition)
  const found: Entry[] = []
  for await (const entries of journal.readTo(topic, partition, oldest, next)) found.push(...entries)
  return found
}

export async function audit(journal: Journal): Promise<Audit> {
  const taken = new Map<string, number>()
  const asked = new Set<TrajectoryId>()
  const finished = new Set<TrajectoryId>()
  let turnsIgnored = 0
  let failed = 0
  let fenced = 0
  for (let partition = 0; partition < (await journal.partitionsOf('trajectories')); partition++) {
    const behaviour = coordinator({ turnTimeoutMs: Number.POSITIVE_INFINITY })
    let state = behaviour.initial()
    let claimed: number | undefined
    let replaced = noCurriculum
    for (const entry of await everything(journal, 'trajectories', partition)) {
      const fact = entry.message as Fact
      if (isStale(claimed, fact)) fenced++
      if (fact.type === 'partition.claimed') claimed = entry.offset
      const before = state
      state = behaviour.evolve(before, fact, entry)
      const counts = state !== before
      if (isReplaced(replaced, fact)) fenced++
      else if (fact.type === 'rollout.requested') asked.add(fact.trajectory)
      replaced = curriculumAfter(replaced, fact)
      if (fact.type === 'rollout.finished' && counts) {
        finished.add(fact.trajectory)
        if (fact.outcome === 'failed') failed++
      }
      if (fact.type !== 'turn.completed') continue
      const place = `${fact.trajectory}#${fact.turn}`
      if (counts) taken.set(place, (taken.get(place) ?? 0) + 1)
      else turnsIgnored++
    }
  }
  const steps: number[] = []
  const started: number[] = []
  let claimed: number | undefined
  for (const { message, offset } of await everything(journal, 'learner', 0)) {
    const fact = message as Fact
    if (fact.type === 'learner.claimed') claimed = offset
    const stale = isStale(claimed, fact)
    if (stale) fenced++
    else if (fact.type === 'step.completed' || fact.type === 'step.rejected') steps.push(fact.step)
    else if (fact.type === 'step.started') started.push(fact.step)
  }
  return {
    turnsCounted: taken.size,
    turnsIgnored,
    turnsTwice: [...taken].filter(([, n]) => n > 1).map(([place]) => place),
    rollouts: asked.size,
    lost: [...asked].filter(trajectory => !finished.has(trajectory)),
    failed,
    fenced,
    steps,
    started,
    deadLetters: (await everything(journal, 'dead-letters', 0)).length,
  }
}
