/**
 * What a fold that begins in the middle of a partition has to know of what stands before: under whose claims its first facts
 * were said, and which rollouts were asked for already.
 *
 * in   a partition, where the fold begins      out  the latest claims, the highest start order that counts
 * Invariant: it is read backwards only as far as it takes. Every decision names its owner's claim, and every request its
 * curriculum's, so that the claims themselves need not be found; those of a log in which nobody claims name none.
 */
import type { CurriculumClaimed, RolloutRequested } from '../../messages/facts'
import type { TopicName } from '../../messages/topics'
import type { Journal } from '../journal/journal'

export interface EarlierFacts {
  /** Offset of the owner's claim; -1 without. */
  readonly owner: number
  /** Epoch of the curriculum; -1 without. */
  readonly curriculum: number
  /** Of the requests that count; -1 where there is none. */
  readonly highestOrder: number
}

/** Records looked through at once. */
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

/** Those of a curriculum that was replaced by then do not count: a later one may ask for others under the same orders. */
function highestOf(asked: readonly (RolloutRequested | CurriculumClaimed)[]): number {
  const claimed = asked.findIndex(({ type }) => type === 'curriculum.claimed')
  // Whoever asks here before the first claim had claimed before; of several the latest.
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
