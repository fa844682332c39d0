/**
 * Takes over a run's learner and curriculum: a process that had them before is fenced off.
 *
 * in   a journal        out  learner.claimed, draws.claimed, and curriculum.claimed in every partition of `trajectories`
 * Invariant: once it resolves, no later request or draw of an earlier curriculum counts; so whoever reads the log after it
 * finds everything that does.
 */
import { type Epoch, epoch } from '../../messages/ids'
import type { Effects } from '../../runtime/effects'
import type { Journal } from '../../runtime/journal/journal'

/** Claims both parts. Resolves with the epoch under which this process speaks as learner and as curriculum. */
export async function claimLearning(journal: Journal, fx: Pick<Effects, 'now' | 'unique'>): Promise<Epoch> {
  const owner = `${journal.run}.${fx.unique()}`
  const at = fx.now()
  const [claim] = await journal.append([{ type: 'learner.claimed', at, owner }])
  const learnerEpoch = epoch(claim!.offset)
  const claimed = { at, owner, learnerEpoch }
  const partitions = Array.from({ length: await journal.partitionsOf('trajectories') }, (_, partition) => partition)
  // This claim comes first: a draw of an earlier curriculum must not count once its requests no longer do.
  await journal.append([{ type: 'draws.claimed', ...claimed }])
  await Promise.all(
    partitions.map(partition => journal.appendTo(partition, { type: 'curriculum.claimed', partition, ...claimed })),
  )
  return learnerEpoch
}

/**
 * Calls `then` once when another process claims after `own`. A process that was suspended in the middle of its claim may claim
 * long after its seat went to another one; the holder of the seat is then fenced off until it claims again. Resolves with a
 * function that ends the watch.
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
