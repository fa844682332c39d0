/**
 * Feeds of the behaviours that read every rollout: curriculum, evaluator, learner.
 *
 * in   a journal
 * out  the feeds, and the offset at which a refold (rebuilding a behaviour's state from the log) begins, per partition
 */
import type { Fact } from '../../../messages/facts'
import type { HostOptions } from '../../../runtime/host/host'
import type { Feed, Journal } from '../../../runtime/journal/journal'
import { fence } from '../../ownership/fencing'
import { refoldFrom } from '../../ownership/refoldFrom'

export type Begin = NonNullable<HostOptions<never, never, never>['begin']>

export const followedFeeds: readonly Feed[] = [
  { topic: 'trajectories', from: 'oldest' },
  { topic: 'runs', from: 'oldest' },
  { topic: 'learner', from: 'oldest' },
]

/**
 * Settings of a refold. learns: true if the run trains. tallies: true if the run writes `step.tallied`. without: names
 * of checkpoints that are ignored.
 */
interface Refold {
  readonly learns: boolean
  readonly tallies?: boolean
  readonly without?: ReadonlySet<string>
}

/**
 * Returns the offset at which a refold of each partition begins. `said`: the facts that `saidOf` read. A refold of
 * `runs` and `learner` begins at offset 0; so does one of `trajectories` in a run that does not train, since without
 * checkpoints all groups have to be read.
 */
export function beginOf(said: readonly Fact[], { learns, tallies, without = new Set() }: Refold): Begin {
  const counted = said.filter(fact => fact.type !== 'checkpoint.saved' || !without.has(fact.name))
  const from = learns ? refoldFrom(counted, tallies) : () => 0
  return (topic, partition) => (topic === 'trajectories' ? from(partition) : 0)
}

/** Reads the facts of these topics, without those that a process wrote after another one had replaced it. */
export async function saidOf(
  journal: Journal,
  topics: readonly ('runs' | 'learner')[] = ['runs', 'learner'],
): Promise<Fact[]> {
  const facts: Fact[] = []
  const counts = fence()
  for (const topic of topics) {
    const { oldest, next } = await journal.offsets(topic, 0)
    for await (const entries of journal.readTo(topic, 0, oldest, next)) {
      for (const entry of entries) if (counts(entry)) facts.push(entry.message as Fact)
    }
  }
  return facts
}
