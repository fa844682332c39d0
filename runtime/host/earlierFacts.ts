/**
 * Finds what a fold (the state computed from facts) that starts in the middle of a partition must know from before: the
 * claims in force there (facts by which a process takes over the partition or the curriculum), and the rollouts
 * requested so far.
 *
 * in   a partition, the offset where the fold begins      out  the latest claims, the highest start order that counts
 * Invariant: the partition is read backwards only as far as needed. Every decision names its owner's claim, and every
 * request its curriculum's, so the claims themselves need not be found. In a log without claims, decisions name none.
 */
import type { CurriculumClaimed, RolloutRequested } from '../../messages/facts'
import type { TopicName } from '../../messages/topics'
import type { Journal } from '../journal/journal'

export interface EarlierFacts {
  /** Offset of the owner's claim; -1 when there is none. */
  readonly owner: number
  /** Epoch of the curriculum (the number that its claim and requests carry); -1 when there is none. */
  readonly curriculum: number
  /**
   * Highest start order (number in the order of requests) of the rollout requests that count; -1 when there is none.
   */
  readonly highestOrder: number
}

/** Number of records that one backward step reads. */
const searchRecords = 4096

export async function earlierFacts(
  journal: Journal,
  topic: TopicName,
  partition: number,
  begin: number,
): Promise<EarlierFacts> {
  const { oldest } = await journal.offsets(topic, partition)
  let owner = -1
  let curriculum = -1
  let asked: (RolloutRequested | CurriculumClaimed)[] = []
  let highestOrder = -1
  for (let end = begin; end > oldest && (owner < 0 || highestOrder < 0); end -= searchRecords) {
    const earlier: typeof asked = []
    for await (const entries of journal.readTo(topic, partition, Math.max(oldest, end - searchRecords), end)) {
      for (const { message, offset } of entries) {
        if ('learnerEpoch' in message) curriculum = Math.max(curriculum, message.learnerEpoch ?? -1)
        if (message.type === 'rollout.requested' || message.type === 'curriculum.claimed') earlier.push(message)
        if (message.type === 'partition.claimed') owner = Math.max(owner, offset)
        else if ('epoch' in message) owner = Math.max(owner, message.epoch ?? -1)
      }
    }
    asked = [...earlier, ...asked]
    highestOrder = highestOf(asked)
  }
  return { owner, curriculum, highestOrder }
}

/**
 * Returns the highest start order. Requests of a replaced curriculum do not count: its successor may request other
 * rollouts under the same orders.
 */
function highestOf(asked: readonly (RolloutRequested | CurriculumClaimed)[]): number {
  const claimed = asked.findIndex(({ type }) => type === 'curriculum.claimed')
  // Requests before the first claim in `asked` belong to curricula whose claims are older than the list; the latest of
  // these curricula counts.
  const unclaimed = claimed < 0 ? asked : asked.slice(0, claimed)
  let curriculum = Math.max(-1, ...unclaimed.map(({ learnerEpoch }) => learnerEpoch ?? -1))
  let highest = -1
  for (const message of asked) {
    const { learnerEpoch = curriculum } = message
    if (learnerEpoch < curriculum) continue
    curriculum = learnerEpoch
    if (message.type === 'rollout.requested') highest = Math.max(highest, message.order)
  }
  return highest
}
