/**
 * Finds where a behaviour that reads all rollouts has to begin its refold (rebuilding its state from the log), so that
 * the time of a resume does not grow with the length of the run.
 *
 * in   the facts of `runs` and `learner`, which are few        out  an offset for every partition of `trajectories`
 * Invariant: no fact that curriculum, evaluator or learner still needs lies before that offset: the facts of steps that
 * no checkpoint covers, of steps that are not tallied yet (if the run tallies steps), and of evaluations and
 * measurements without a result. Each draw (batch of new groups) records where the partitions ended before it
 * (`begins`).
 */
import type { CurriculumAdvanced, Fact } from '../../messages/facts'

interface Drawn {
  readonly step: number
  readonly begins?: readonly number[]
}

/**
 * Returns a function from a partition to the first offset to read. `tallies`: true if the run writes `step.tallied`.
 */
export function refoldFrom(facts: Iterable<Fact>, tallies = false): (partition: number) => number {
  const train: Drawn[] = []
  const evaluations: Drawn[] = []
  const evaluated = new Set<number>()
  const measures = new Map<string, Drawn>()
  let tallied = 0
  const saved = new Set<number>()
  let done = 0
  for (const fact of facts) {
    switch (fact.type) {
      case 'curriculum.advanced':
        if (fact.purpose === 'measure') measures.set(placeOf(fact), fact)
        else (fact.purpose === 'train' ? train : evaluations).push(fact)
        break
      case 'tasks.measured':
        measures.delete(`${fact.index}.${fact.from}`)
        break
      case 'step.tallied':
        tallied = Math.max(tallied, fact.step)
        break
      case 'evaluation.completed':
        evaluated.add(fact.step)
        break
      case 'checkpoint.saved':
        // A checkpoint with `updates` is of the middle of a step, so a refold cannot begin after that step.
        if (fact.updates === undefined) saved.add(fact.step)
        break
      case 'step.rejected':
        saved.delete(fact.step)
        done = Math.max(done, fact.step)
        break
      case 'step.completed':
        done = Math.max(done, fact.step)
        break
      default:
        break
    }
  }
  // A checkpoint counts only when its step is completed, since checkpoint.saved may be written before step.completed.
  const newest = Math.max(0, ...[...saved].filter(step => step <= done))
  const covered = Math.min(newest, tallies ? tallied : done)
  const needed = [
    ...train.filter(d => d.step > covered),
    ...evaluations.filter(d => !evaluated.has(d.step)),
    ...measures.values(),
  ]
  // If no draw is needed any more, the refold begins at the last evaluation's draw, or, in a run without evaluations,
  // at the last training draw.
  const bounds = needed.length > 0 ? needed : [...train, ...evaluations].slice(-1)
  return partition => (bounds.length === 0 ? 0 : Math.min(...bounds.map(({ begins }) => begins?.[partition] ?? 0)))
}

/** Key of a measurement: its stage and the index of its first problem. */
const placeOf = ({ groups, cursor }: CurriculumAdvanced) =>
  `${Number(/^m(\d+)\./.exec(groups[0] ?? '')?.[1] ?? -1)}.${cursor - groups.length}`
