/**
 * Builds the trainer's input for a step: the token sequences of the trajectories in its batch.
 *
 * in   a batch, the facts of its trajectories from the log
 * out  for each trajectory its tokens, mask, engine logprobs, advantage and group, in the order of `step.started`; for
 *      a rollout that an agent drove, one sequence for each of its conversations, all with the rollout's advantage
 * Invariant: facts of replaced owners and replaced curricula are left out, so a repeated step has the same sequences.
 */
import type { TrainSequence } from '../../backends/trainer/trainer'
import { type AssembledSequence, assembleSequence, callRows, callTree, isCallFact, trainedLabels } from '../../kernels'
import type { CallLabel, Fact, TrajectoryFact } from '../../messages/facts'
import { groupOf, type TrajectoryId } from '../../messages/ids'
import type { Journal } from '../../runtime/journal/journal'
import { curriculumAfter, isReplaced, noCurriculum } from '../ownership/fencing'
import type { Batch } from './learner'

/**
 * Builds the trainer's sequences in the order of `step.started`; groups are numbered from 0 in the order in which they
 * first occur there. `labels`: labels of those calls of an agent that are trained on. A sequence without a sampled
 * token is left out, so it counts in no normalisation of the loss.
 */
export function trainSequences(
  { started, groups }: Pick<Batch, 'started' | 'groups'>,
  facts: ReadonlyMap<TrajectoryId, readonly TrajectoryFact[]>,
  labels: readonly CallLabel[] = trainedLabels,
): TrainSequence[] {
  const indexOf = new Map([...new Set(started.trajectories.map(groupOf))].map((group, i) => [group, i]))
  const advantageOf = new Map<string, number>(
    groups.flatMap(g => g.kept.map(k => [`${g.group}/${k.member}`, k.advantage] as const)),
  )
  return started.trajectories.flatMap(trajectory => {
    const group = indexOf.get(groupOf(trajectory))!
    const advantage = advantageOf.get(trajectory)!
    return sequencesOf(facts.get(trajectory) ?? [], labels)
      .map(trained)
      .filter(({ tokens }) => tokens.length > 0)
      .map(sequence => ({ trajectory, ...sequence, advantage, group }))
  })
}

/**
 * Returns one sequence for each conversation of a rollout that an agent drove through the gateway, and one sequence for
 * any other rollout.
 */
const sequencesOf = (facts: readonly TrajectoryFact[], labels: readonly CallLabel[]): readonly AssembledSequence[] =>
  facts.some(isCallFact) ? callRows(callTree(facts), labels) : [assembleSequence(facts)]

/**
 * Cuts a sequence after its last sampled token. What follows it, such as a tool response that took the rollout over its
 * budget, is not part of the training data. A sequence without a sampled token becomes empty.
 */
function trained({
  tokens,
  mask,
  engineLogprobs,
}: AssembledSequence): Pick<TrainSequence, 'tokens' | 'mask' | 'engineLogprobs'> {
  const end = mask.lastIndexOf(1) + 1
  return { tokens: tokens.slice(0, end), mask: mask.slice(0, end), engineLogprobs: engineLogprobs.slice(0, end) }
}

/**
 * Reads the facts of a batch's trajectories, from the log positions where their groups begin. Facts written by replaced
 * owners and replaced curricula are left out.
 */
export async function factsOf(journal: Journal, batch: Batch): Promise<Map<TrajectoryId, TrajectoryFact[]>> {
  const wanted = new Map<TrajectoryId, TrajectoryFact[]>(batch.started.trajectories.map(t => [t, []]))
  const begins = new Map<number, number>()
  for (const { partition, offset } of batch.places.values()) {
    begins.set(partition, Math.min(begins.get(partition) ?? offset, offset))
  }
  for (const [partition, begin] of begins) {
    const { next } = await journal.offsets('trajectories', partition)
    let claimed = -1
    let curriculum = noCurriculum
    for await (const entries of journal.readTo('trajectories', partition, begin, next)) {
      for (const { message, offset } of entries) {
        if (message.type === 'partition.claimed') claimed = offset
        // The first record read is a valid request of a group of the batch, so its learnerEpoch names the curriculum
        // whose requests are valid from there on.
        if (isReplaced(curriculum, message as Fact)) continue
        curriculum = curriculumAfter(curriculum, message as Fact)
        if (!('trajectory' in message) || ('epoch' in message && message.epoch < claimed)) continue
        wanted.get(message.trajectory)?.push(message as TrajectoryFact)
      }
    }
  }
  return wanted
}
