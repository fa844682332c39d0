/** Consumers of one process that stand at the same offset share one read of the log. */
import type { BusRecord } from '../../../runtime/bus/bus'
import { SharedReads } from '../../../runtime/bus/sharedReads'

function countedLog() {
  const records: BusRecord[] = []
  let reads = 0
  return {
    grow: () =>
      void records.push({
        ...{ topic: 't', partition: 0, offset: records.length, timestamp: 0, key: 'k', headers: {} },
        value: new Uint8Array(),
      }),
    get reads() {
      return reads
    },
    offsets: () => ({ oldest: 0, next: records.length }),
    read(_topic: string, _partition: number, offset: number, max: number) {
      reads++
      return records.slice(offset, offset + max)
    },
  }
}

test('64 consumers at one offset cost one read, and the read that finds nothing costs none', () => {
  const log = countedLog()
  for (let k = 0; k < 10; k++) log.grow()
  const shared = new SharedReads(log)
  const offsetsOf = (from: number) => shared.read('t', 0, from, 512, 1e6).map(r => r.offset)
  for (let consumer = 0; consumer < 64; consumer++) expect(offsetsOf(2)).toEqual([2, 3, 4, 5, 6, 7, 8, 9])
  for (let consumer = 0; consumer < 64; consumer++) expect(offsetsOf(10)).toEqual([])
  expect(log.reads).toBe(1)
})

test('a batch is read again once the partition has grown, and for another bound or offset', () => {
  const log = countedLog()
  log.grow()
  const shared = new SharedReads(log)
  expect(shared.read('t', 0, 0, 512, 1e6)).toHaveLength(1)
  log.grow()
  expect(shared.read('t', 0, 0, 512, 1e6)).toHaveLength(2)
  expect(shared.read('t', 0, 0, 1, 1e6)).toHaveLength(1)
  expect(shared.read('t', 0, 1, 1, 1e6).map(r => r.offset)).toEqual([1])
})
