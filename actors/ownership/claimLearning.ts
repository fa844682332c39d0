/**
 * Takes over a run's learner and curriculum; the process that held them before is fenced off (readers ignore what it
 * writes from then on).
 *
 * in   a journal
 * out  learner.claimed, draws.claimed, and curriculum.claimed in every partition of `trajectories`
 * Invariant: after the claim has resolved, no later request or draw (batch of new groups) of an earlier curriculum is
 * valid, so a reader that starts afterwards finds every valid request of earlier curricula in the log.
 */
import { type Epoch, epoch } from '../../messages/ids'
import type { Effects } from '../../runtime/effects'
import type { Journal } from '../../runtime/journal/journal'

/**
 * Claims the learner and the curriculum. Resolves with the epoch (log offset of `learner.claimed`) that this process
 * puts into its facts in both roles.
 */
export async function claimLearning(journal: Journal, fx: Pick<Effects, 'now' | 'unique'>): Promise<Epoch> {
  const owner = `${journal.run}.${fx.unique()}`
  const at = fx.now()
  const [claim] = await journal.append([{ type: 'learner.claimed', at, owner }])
  const learnerEpoch = epoch(claim!.offset)
  const claimed = { at, owner, learnerEpoch }
  const partitions = Array.from({ length: await journal.partitionsOf('trajectories') }, (_, partition) => partition)
  // draws.claimed comes first: otherwise a draw of an earlier curriculum could be valid although its requests are not.
  await journal.append([{ type: 'draws.claimed', ...claimed }])
  await Promise.all(
    partitions.map(partition => journal.appendTo(partition, { type: 'curriculum.claimed', partition, ...claimed })),
  )
  return learnerEpoch
}

/**
 * Calls `then` once, when the log has a `learner.claimed` of another process after the offset `own`. A process that was
 * suspended in the middle of its claim may finish it after it lost the election; the elected process is then fenced off
 * until it claims again. Resolves with a function that ends the watch.
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
