/**
 * Checks the facts of the learner: steps end in order, each trains on trajectories that were kept, and each policy
 * version is published with one content.
 *
 * in   the facts of the topic `learner`, in the log's order; the trajectories that each group's selection kept
 * out  for each fact: a problem, or the reason why it is ignored, or neither
 * Invariant: a repeated fact is ignored; it is a problem only if it publishes other weights under a published version.
 */
import { isStale } from '../../actors/ownership/fencing'
import type { LearnerFact } from '../../messages/facts'
import { groupOf } from '../../messages/ids'

export function learnerChecks() {
  const started = new Map<number, ReadonlySet<string>>()
  const over = new Set<number>()
  const versions = new Map<number, string>()
  let claimed: number | undefined
  return {
    /** Number of steps that ended, completed or rejected. */
    ended: () => over.size,
    /** Checks the next fact. `selected`: the kept trajectories, by group. */
    take(
      fact: LearnerFact,
      offset: number,
      selected: ReadonlyMap<string, ReadonlySet<string>>,
    ): { problem?: string; ignored?: string } {
      if (isStale(claimed, fact)) return { ignored: `${fact.type} of a former learner` }
      switch (fact.type) {
        case 'learner.claimed':
          claimed = offset
          return {}
        case 'step.started': {
          if (started.has(fact.step)) return { ignored: 'step.started repeated or too late' }
          started.set(fact.step, new Set(fact.trajectories))
          const stray = fact.trajectories.find(t => selected.get(groupOf(t))?.has(t) !== true)
          return stray === undefined
            ? {}
            : { problem: `step ${fact.step} trains on ${stray}, which its group's selection did not keep` }
        }
        case 'step.completed':
        case 'step.rejected':
          if (over.has(fact.step)) return { ignored: `${fact.type} repeated or too late` }
          over.add(fact.step)
          if (!started.has(fact.step)) return { problem: `step ${fact.step} ended but never started` }
          return fact.step > 1 && !over.has(fact.step - 1)
            ? { problem: `step ${fact.step} ended before step ${fact.step - 1}` }
            : {}
        case 'weights.published': {
          const before = versions.get(fact.version)
          versions.set(fact.version, fact.digest)
          if (before === undefined) return {}
          if (before === fact.digest) return { ignored: 'weights.published repeated or too late' }
          return { problem: `version ${fact.version} was published twice, with different weights` }
        }
        default:
          return {}
      }
    },
  }
}
