/** The memory bus keeps the contract, and drops what is over age. */
import { openMemoryBus } from '../../../runtime/bus'
import { manualEffects } from '../../../runtime/effects'
import { busContract, codeOf, record, textOf } from './contract'

busContract({
  name: 'memory',
  durable: false,
  start: async () => ({ open: async () => openMemoryBus(), remove: async () => {} }),
})

test('a memory topic with a retention drops its oldest records, and offsets go on', async () => {
  const effects = manualEffects(1_000_000)
  const bus = openMemoryBus({ effects })
  await bus.createTopics([{ topic: 't', partitions: 1, retentionMs: 1000 }])
  await bus.append(Array.from({ length: 1500 }, (_, i) => record('t', 'k', `${i}`)))
  effects.advance(2000)
  await bus.append([record('t', 'k', 'late')])
  const { oldest, next } = await bus.offsets('t', 0)
  expect(oldest).toBeGreaterThan(0)
  expect(next).toBe(1501)
  expect(await codeOf(bus.read('t', 0, 0))).toBe('bus.offset_out_of_range')
  expect(textOf((await bus.read('t', 0, 1500))[0]!)).toBe('late')
  await bus.close()
})
