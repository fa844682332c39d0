/**
 * Records the orders of a person as facts that all roles follow; runs in the process that has the learner's role.
 *
 * in   run.control on the topic `control`; on lmdb, order files in the run's directory, which become such commands
 * out  control.obeyed, once for each order
 * Invariant: one control.obeyed is written for each order, however often the order arrives and whichever process reads
 * it, since the fact has the order's id. A drain or abort that was given before the run was last started or resumed is
 * out of date and is ignored, with a warning.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Fact } from '../../../messages/facts'
import type { Epoch } from '../../../messages/ids'
import { waitingOrders } from '../../../runtime/control/orderFiles'
import type { Effects } from '../../../runtime/effects'
import { asError } from '../../../runtime/errors'
import type { Journal } from '../../../runtime/journal/journal'
import type { Log } from '../../../runtime/log'

/** Time in ms between two searches for order files. */
const lookEveryMs = 500

export interface TakeOrdersOptions {
  readonly journal: Journal
  readonly fx: Effects
  readonly log: Log
  readonly learnerEpoch: Epoch
  /** Facts that were in the log at the start, those of the topic `runs` at least. */
  readonly said: readonly Fact[]
  /** Directory with order files; undefined where orders are written to the bus itself. */
  readonly directory?: string | undefined
  readonly mayAct: () => Promise<boolean>
  readonly onError: (error: Error) => void
}

/** Starts to record orders, one control.obeyed for each. Resolves with a function that stops this. */
export async function takeOrders(options: TakeOrdersOptions): Promise<() => Promise<void>> {
  const { journal, fx, log, learnerEpoch, said, directory, mayAct, onError } = options
  const obeyed = said.flatMap(fact => (fact.type === 'control.obeyed' ? [fact] : []))
  const ids = new Set(obeyed.map(({ id }) => id))
  const begunAt = Math.max(0, ...said.map(f => (f.type === 'run.started' || f.type === 'run.resumed' ? f.at : 0)))
  const { oldest } = await journal.offsets('control', 0)
  const from = Math.max(oldest, ...obeyed.map(({ offset }) => offset + 1))
  const following = await journal.follow(
    {
      group: `control.${fx.unique()}`,
      feeds: [{ topic: 'control', from: 'oldest' }],
      onAssigned: async () => from,
      onError,
    },
    async entries => {
      for (const { message, offset } of entries) {
        if (message.type !== 'run.control' || ids.has(message.id)) continue
        const { id, order, reason, at } = message
        const isOld = (order === 'drain' || order === 'abort') && at < begunAt
        if (isOld) log.warn({ order, id }, 'an order is ignored: it precedes the latest start or resume of the run')
        if (isOld || !(await mayAct())) continue
        ids.add(id)
        await journal.append([{ type: 'control.obeyed', at: fx.now(), id, offset, order, reason, learnerEpoch }])
      }
    },
  )
  const over = new AbortController()
  const looking = directory === undefined ? Promise.resolve() : look(directory)

  async function look(at: string): Promise<void> {
    while (!over.signal.aborted) {
      try {
        for (const { order, done } of await waitingOrders(at)) {
          await journal.append([order])
          await done()
        }
      } catch (thrown) {
        if (!over.signal.aborted) onError(asError(thrown))
        return
      }
      await sleep(lookEveryMs, undefined, { signal: over.signal, ref: false }).catch(() => {})
    }
  }

  return async () => {
    over.abort()
    await looking
    await following.close()
  }
}
