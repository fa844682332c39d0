/**
 * Checks a run's history in the manner of Jepsen: the claims and epochs of partitions, learner, curriculum and
 * scheduler, in the order of the log, and whether each owner's decisions rest on facts that count.
 *
 * in   the facts of `runs`, `trajectories` and `learner`, topic by topic, each partition in its order
 * out  violations
 * Invariant: a history that keeps the rules is never accused. Late, repeated and fenced facts are no violation; two
 * processes that act under one claim, and decisions that follow from facts that do not count, are.
 */
import { isStale } from '../../actors/ownership/fencing'
import type { Fact, GroupSelected, StepStarted, TrajectoryFact } from '../../messages/facts'
import { type GroupId, groupOf } from '../../messages/ids'
import type { Entry } from '../../runtime/journal/journal'
import { placeText } from '../log/place'
import { Answers } from './answers'
import { Epochs, type Writer } from './epochs'
import { Schedulers } from './schedulers'
import type { Violation } from './violation'

interface Partition {
  readonly owners: Epochs
  readonly schedulers: Schedulers
  readonly answers: Answers
  /** Epoch of the latest claim; -1 before the first. */
  owner: number
}

export class HistoryChecker {
  private readonly partitions = new Map<number, Partition>()
  private readonly learners = new Epochs('two-learners', 'learner', true)
  private readonly curricula = new Epochs('two-curricula', 'curriculum', false)
  private readonly selections = new Set<GroupId>()
  /** Position of the latest selection of each group in which no selection counts so far. */
  private readonly uncounted = new Map<GroupId, string>()
  private readonly found: Violation[] = []
  private learner: number | undefined

  /**
   * Takes the next fact; returns true if it counts: its writer was not replaced and, in `trajectories`, it keeps the
   * rules. A fact of `runs` always counts.
   */
  take(entry: Entry): boolean {
    const { writer } = entry
    const fact = entry.message as Fact
    const place = placeText(entry)
    if ('learnerEpoch' in fact && fact.learnerEpoch !== undefined)
      this.curricula.acted(fact.learnerEpoch, writer, place, fact.type)
    if (entry.topic === 'trajectories') return this.ofPartition(entry, fact as TrajectoryFact, writer, place)
    if (entry.topic === 'learner') return this.ofLearner(entry, fact, writer, place)
    return true
  }

  violations(): readonly Violation[] {
    const ofPartitions = [...this.partitions.values()].flatMap(({ owners, schedulers, answers }) => [
      ...owners.violations(),
      ...schedulers.violations(),
      ...answers.violations,
    ])
    return [...ofPartitions, ...this.learners.violations(), ...this.curricula.violations(), ...this.found]
  }

  private ofPartition(entry: Entry, fact: TrajectoryFact, writer: Writer, place: string): boolean {
    const partition = this.partitions.get(entry.partition) ?? newPartition()
    this.partitions.set(entry.partition, partition)
    const { owners, schedulers, answers } = partition
    if ('epoch' in fact) owners.acted(fact.epoch, writer, place, fact.type)
    switch (fact.type) {
      case 'partition.claimed':
        owners.claimed(entry.offset, writer, place)
        partition.owner = entry.offset
        break
      case 'scheduler.claimed':
        schedulers.claimed(entry.offset, writer, place)
        break
      case 'turn.asked':
        schedulers.askedFor(fact.trajectory, entry.offset, place)
        break
      case 'rollout.started':
        schedulers.started(fact.trajectory, writer, place)
        break
      case 'rollout.finished':
        schedulers.ended(fact.trajectory)
        break
    }
    const counts = answers.take(fact, !('epoch' in fact) || fact.epoch === partition.owner, place)
    if (fact.type === 'group.selected') this.selected(fact, counts, place)
    return counts
  }

  private selected({ group }: GroupSelected, counts: boolean, place: string): void {
    if (counts) {
      this.selections.add(group)
      this.uncounted.delete(group)
    } else if (!this.selections.has(group)) this.uncounted.set(group, place)
  }

  private ofLearner(entry: Entry, fact: Fact, writer: Writer, place: string): boolean {
    if (fact.type === 'learner.claimed') {
      this.learners.claimed(entry.offset, writer, place)
      this.curricula.claimed(entry.offset, writer, place)
      this.learner = entry.offset
      return true
    }
    if ('epoch' in fact && fact.epoch !== undefined) this.learners.acted(fact.epoch, writer, place, fact.type)
    if (isStale(this.learner, fact)) return false
    if (fact.type === 'step.started') this.trains(fact, place)
    return true
  }

  /** Accuses a step that trains on a group whose only selections do not count. */
  private trains({ step, trajectories }: StepStarted, place: string): void {
    for (const group of new Set(trajectories.map(groupOf))) {
      const selection = this.uncounted.get(group)
      if (selection === undefined) continue
      const message = `step ${step} trains on ${group}, whose selection at ${selection} does not count`
      this.found.push({ kind: 'former-answer', places: [selection, place], message })
    }
  }
}

const newPartition = (): Partition => ({
  owners: new Epochs('two-owners', 'owner', true),
  schedulers: new Schedulers(),
  answers: new Answers(),
  owner: -1,
})
