/**
 * Follows a person's orders in every process of a run: stops the run's clock while a pause holds, and tells whether the
 * run was aborted, so that the process waits less for its actors when it ends.
 *
 * in   control.obeyed, run.resumed        out  the run's clock stopped or started; whether the run was aborted
 * Invariant: while a pause holds, no deadline (of a turn, a tool call, a group) passes in any process of the run, also
 * not in one that joins meanwhile.
 */
import type { DiskPause } from '../../../runtime/disk/diskPause'
import type { Effects } from '../../../runtime/effects'
import type { Journal } from '../../../runtime/journal/journal'
import { fence } from '../../ownership/fencing'
import { pausedAfter } from '../../ownership/orders'

export interface HeededOrders {
  isAborted(): boolean
  close(): Promise<void>
}

export async function heedOrders(
  journal: Journal,
  fx: Pick<Effects, 'unique'>,
  disk: Pick<DiskPause, 'stopClock'>,
  onError: (error: Error) => void,
): Promise<HeededOrders> {
  const counts = fence()
  let [paused, aborted] = [false, false]
  let startClock: (() => void) | undefined
  const following = await journal.follow(
    { group: `orders.${fx.unique()}`, feeds: [{ topic: 'runs', from: 'oldest' }], onError },
    async entries => {
      for (const entry of entries) {
        if (!counts(entry)) continue
        const { message } = entry
        if (message.type === 'run.resumed') aborted = false
        if (message.type !== 'control.obeyed') continue
        aborted = message.order === 'abort'
        paused = pausedAfter(paused, message.order)
      }
      if (paused) startClock ??= disk.stopClock()
      else {
        startClock?.()
        startClock = undefined
      }
    },
  )
  return {
    isAborted: () => aborted,
    async close() {
      startClock?.()
      await following.close()
    },
  }
}
