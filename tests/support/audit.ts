/**
 * Audits a run's log: counts the turns, rollouts and steps that the coordinator's fold accepts, and those that it
 * ignores.
 *
 * in   the journal of a run that has ended
 * out  counts; the ids of turns that were accepted twice and of rollouts that never finished; steps in the log's order
 * A late answer or a decision of a replaced owner is counted as ignored or fenced, not as an error.
 */

import { curriculumAfter, isReplaced, isStale, noCurriculum } from '../../actors/ownership/fencing'
import { coordinator } from '../../actors/rollouts/coordinator'
import type { Fact } from '../../messages/facts'
import type { TrajectoryId } from '../../messages/ids'
import { HistoryChecker } from '../../replay/histories/historyChecker'
import type { Violation } from '../../replay/histories/violation'
import type { Entry, Journal } from '../../runtime/journal/journal'

export interface Audit {
  readonly turnsCounted: number
  /** Number of `turn.completed` that the fold ignored: answers to an older attempt, or repeated answers. */
  readonly turnsIgnored: number
  /** Turns, as `group/member#turn`, of which the fold accepted more than one answer. */
  readonly turnsTwice: readonly string[]
  readonly rollouts: number
  /** Requested rollouts without an accepted `rollout.finished`. */
  readonly lost: readonly TrajectoryId[]
  /** Number of rollouts that finished as `failed`. */
  readonly failed: number
  /** Reasons of the failed rollouts, in the log's order. */
  readonly failedBecause: readonly string[]
  /** Number of facts that owners, learners and curricula wrote after another had replaced them. */
  readonly fenced: number
  /** Steps that completed or were rejected, in the log's order, without facts of replaced learners. */
  readonly steps: readonly number[]
  /** Steps of the `step.started` facts, in the log's order, without facts of replaced learners. */
  readonly started: readonly number[]
  readonly deadLetters: number
  /** Breaches of the rules of ownership, with their offsets. */
  readonly violations: readonly Violation[]
}

export async function everything(journal: Journal, topic: Entry['topic'], partition: number): Promise<Entry[]> {
  const { oldest, next } = await journal.offsets(topic, partition)
  const found: Entry[] = []
  for await (const entries of journal.readTo(topic, partition, oldest, next)) found.push(...entries)
  return found
}

export async function audit(journal: Journal): Promise<Audit> {
  const history = new HistoryChecker()
  for (const entry of await everything(journal, 'runs', 0)) history.take(entry)
  const taken = new Map<string, number>()
  const asked = new Set<TrajectoryId>()
  const finished = new Set<TrajectoryId>()
  let turnsIgnored = 0
  const failedBecause: string[] = []
  let fenced = 0
  for (let partition = 0; partition < (await journal.partitionsOf('trajectories')); partition++) {
    const behaviour = coordinator({ turnTimeoutMs: Number.POSITIVE_INFINITY })
    let state = behaviour.initial()
    let claimed: number | undefined
    let replaced = noCurriculum
    for (const entry of await everything(journal, 'trajectories', partition)) {
      const fact = entry.message as Fact
      history.take(entry)
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
        if (fact.outcome === 'failed') failedBecause.push(`${fact.trajectory}: ${fact.reason}`)
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
  for (const entry of await everything(journal, 'learner', 0)) {
    const { message, offset } = entry
    const fact = message as Fact
    history.take(entry)
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
    failed: failedBecause.length,
    failedBecause,
    fenced,
    steps,
    started,
    violations: history.violations(),
    deadLetters: (await everything(journal, 'dead-letters', 0)).length,
  }
}
