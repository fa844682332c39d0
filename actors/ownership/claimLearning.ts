/**
 * A process takes over a run's learner and curriculum: who had them before is not heard any more.
 *
 * in   a journal        out  learner.claimed, then draws.claimed, and curriculum.claimed in every partition of `trajectories`
 * Invariant: when it resolves, no request and no draw of an earlier curriculum counts that is not in the log yet, so whoever
 * begins after it finds all that does.
 */
import { type Epoch, epoch } from '../../messages/ids'
import type { Effects } from '../../runtime/effects'
import type { Journal } from '../../runtime/journal/journal'

/** Resolves with the epoch, under which this process says what it says as learner and as curriculum. */
export async function claimLearning(journal: Journal, fx: Pick<Effects, 'now' | 'unique'>): Promise<Epoch> {
  const owner = `${journal.run}.${fx.unique()}`
  const at = fx.now()
  const [claim] = await journal.append([{ type: 'learner.claimed', at, owner }])
  const learnerEpoch = epoch(claim!.offset)
  const claimed = { at, owner, learnerEpoch }
  const partitions = Array.from({ length: await journal.partitionsOf('trajectories') }, (_, partition) => partition)
  // Before the others: of an earlier curriculum no draw counts whose requests do not.
  await journal.append([{ type: 'draws.claimed', ...claimed }])
  await Promise.all(
    partitions.map(partition => journal.appendTo(partition, { type: 'curriculum.claimed', partition, ...claimed })),
  )
  return learnerEpoch
}

/**
 * Calls `then`, once, when another claims after `own`. One that was stopped in the middle of its claim may do so long after its seat
 * went to another; who has the seat is not heard from then on, until it claims again. What it resolves with ends the watch.
 */
export async function whenReplaced(
  journal: Journal,
  fx: Pick<Effects, 'unique'>,
  own: Epoch,
  then: () => void,
  onError: (error: Error) => void,
): Promise<() => Promise<void>> {
  let isReplaced = false
  const following = await journal.follow(
    {
      group: `claims-watch.${fx.unique()}`,
      feeds: [{ topic: 'learner', from: 'oldest' }],
      onAssigned: async () => own + 1,
      onError,
    },
    async entries => {
      if (isReplaced || !entries.some(({ message, offset }) => message.type === 'learner.claimed' && offset > own))
        return
      isReplaced = true
      then()
    },
  )
  return () => following.close()
}
