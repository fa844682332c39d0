/**
 * Collects the facts of each step of a run by following the run's topic `trajectories`, for benchmarks whose rollouts
 * follow traces (fixed lengths of turns and delays of tools, traces.ts).
 *
 * in   a run; a step and its number of groups
 * out  the facts of the step's rollouts, once that many of its groups are selected or rejected
 */

import type { Run } from '../../actors/run/run'
import type { Fact, TrajectoryFact } from '../../messages/facts'
import { groupOf, type TrajectoryId } from '../../messages/ids'

export interface RecordedRollout {
  readonly trajectory: TrajectoryId
  readonly facts: readonly TrajectoryFact[]
}

export interface RecordedSteps {
  /** Resolves when all `count` groups of the step are selected or rejected. */
  step(step: number, count: number): Promise<readonly RecordedRollout[]>
  close(): Promise<void>
}

interface Gathering {
  readonly rollouts: Map<TrajectoryId, TrajectoryFact[]>
  decided: number
  readonly wanted: { count: number; done: () => void }[]
}

export async function recordSteps(run: Run): Promise<RecordedSteps> {
  const steps = new Map<number, Gathering>()
  const stepOf = new Map<string, number>()
  const gathering = (step: number): Gathering => {
    const found = steps.get(step) ?? { rollouts: new Map(), decided: 0, wanted: [] }
    steps.set(step, found)
    return found
  }
  function take(fact: Fact): void {
    if (fact.type === 'rollout.requested') stepOf.set(fact.group, fact.step)
    if (fact.type === 'group.selected' || fact.type === 'group.rejected') {
      const at = gathering(fact.step)
      at.decided++
      for (const { count, done } of at.wanted) if (at.decided === count) done()
      return
    }
    if (!('trajectory' in fact)) return
    const { rollouts } = gathering(stepOf.get(groupOf(fact.trajectory))!)
    const facts = rollouts.get(fact.trajectory) ?? []
    rollouts.set(fact.trajectory, facts)
    facts.push(fact as TrajectoryFact)
  }
  const following = await run.journal.follow(
    {
      group: 'bench',
      lingerMs: 20,
      feeds: [{ topic: 'trajectories', from: 'oldest' }],
      onError: error => process.stderr.write(`the benchmark can no longer follow the log: ${error.message}\n`),
    },
    async entries => {
      for (const { message } of entries) take(message as Fact)
    },
  )
  return {
    async step(step, count) {
      const at = gathering(step)
      if (at.decided < count) await new Promise<void>(done => at.wanted.push({ count, done }))
      steps.delete(step)
      return [...at.rollouts].map(([trajectory, facts]) => ({ trajectory, facts }))
    },
    close: () => following.close(),
  }
}
