/**
 * Where a follower of all rollouts begins to read them again, so that a resume does not take longer the longer a run is.
 *
 * in   the facts of `runs` and `learner`, which are few        out  an offset for every partition of `trajectories`
 * Invariant: no fact that curriculum, evaluator or learner still needs stands before it: of steps that no checkpoint
 * covers, and of evaluations without a result. Each draw says where its partitions ended before it (`begins`).
 */
import type { Fact } from '../messages/facts'

interface Drawn {
  readonly step: number
  readonly begins?: readonly number[]
}

export function refoldFrom(facts: Iterable<Fact>): (partition: number) => number {
  const train: Drawn[] = []
  const evaluations: Drawn[] = []
  const evaluated = new Set<number>()
  let saved = 0
  let done = 0
  for (const fact of facts) {
    switch (fact.type) {
      case 'curriculum.advanced':
        ;(fact.purpose === 'train' ? train : evaluations).push(fact)
        break
      case 'evaluation.completed':
        evaluated.add(fact.step)
        break
      case 'checkpoint.saved':
        saved = Math.max(saved, fact.step)
        break
      case 'step.completed':
      case 'step.rejected':
        done = Math.max(done, fact.step)
        break
      default:
        break
    }
  }
  // A checkpoint is written before its step is over.
  const covered = Math.min(saved, done)
  const needed = [...train.filter(d => d.step > covered), ...evaluations.filter(d => !evaluated.has(d.step))]
  // When nothing is, the last draw is the nearest place that is known.
  const bounds = needed.length > 0 ? needed : [...train, ...evaluations].slice(-1)
  return partition => (bounds.length === 0 ? 0 : Math.min(...bounds.map(({ begins }) => begins?.[partition] ?? 0)))
}
