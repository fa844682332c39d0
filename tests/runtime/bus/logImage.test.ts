/** Images of a log: an extension is told from a log in which a record is gone, another, or in another place. */
import { openBus } from '../../../runtime/bus/open'
import { logImage, notExtended, recordsOf } from '../../support/logImage'

test('a log that was only added to is an extension; one with a record less, or another, is not', async () => {
  const bus = await openBus('memory:')
  await bus.createTopics([{ topic: 'a', partitions: 1, retentionMs: null }])
  const record = (text: string) => ({ topic: 'a', key: 'k', headers: { h: text }, value: Buffer.from(text) })
  await bus.append([record('1'), record('2')])
  const before = await logImage(bus)
  await bus.append([record('3')])
  const after = await logImage(bus)
  expect([recordsOf(before), recordsOf(after)]).toEqual([2, 3])
  expect(notExtended(before, after)).toBeUndefined()
  expect(notExtended(after, before)).toBe('a/0: record 2 of 3 is gone')
  const [first, second, third] = after.get('a/0')!
  expect(notExtended(before, new Map([['a/0', [second!, first!, third!]]]))).toBe('a/0: record 0 of 2 is another')
  expect(notExtended(before, new Map())).toBe('a/0: record 0 of 2 is gone')
  await bus.close()
})
