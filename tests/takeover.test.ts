/** A learner's part that is claimed by one who has not its seat any more: whoever has it claims it again, and goes on. */
import { claimLearning, whenReplaced } from '../actors/claimLearning'
import { lead } from '../actors/roles/lead'
import type { Scope } from '../actors/roles/scope'
import type { RunOptions } from '../actors/run'
import { runId } from '../messages/ids'
import { memoryBlobs } from '../runtime/bus/blobs'
import type { Bus } from '../runtime/bus/bus'
import { openMemoryBus } from '../runtime/bus/memory'
import { manualEffects } from '../runtime/effects'
import { openJournal } from '../runtime/journal'
import { createLog } from '../runtime/log'
import { until } from './support/until'

const run = runId('r')
const fx = manualEffects(0)
const fail = (error: Error) => {
  throw error
}

test('a claim that comes late, from one whose seat went to another, does not silence the run', async () => {
  const inner = openMemoryBus()
  let isSeated = true
  const bus: Bus = {
    ...inner,
    async subscribe(options, handler) {
      const subscription = await inner.subscribe(options, handler)
      return { ...subscription, holds: (topic, partition) => isSeated && subscription.holds(topic, partition) }
    },
  }
  const journal = openJournal(bus, memoryBlobs(), run)
  await journal.create(1)
  const claims: number[] = []
  let ended = 0
  const options = { bus, run, log: createLog('test', { level: 'silent' }) } as unknown as RunOptions
  const leave = await lead(options, 'learner', fail, async (_mayAct, again) => {
    const own = await claimLearning(journal, fx)
    claims.push(own)
    const unwatch = await whenReplaced(journal, fx, own, again, fail)
    const close = async () => {
      ended++
      await unwatch()
    }
    return { close } as unknown as Scope
  })
  await until(() => claims.length === 1)
  const late = await claimLearning(journal, fx)
  await until(() => claims.length === 2)
  expect(claims[1]).toBeGreaterThan(late)
  expect(ended).toBe(1)
  // While the seat is in doubt nobody is answered with a claim of ours.
  isSeated = false
  await claimLearning(journal, fx)
  await new Promise(resolve => setTimeout(resolve, 100))
  expect(claims).toHaveLength(2)
  isSeated = true
  await until(() => claims.length === 3)
  await leave()
  expect(ended).toBe(3)
  await inner.close()
})
