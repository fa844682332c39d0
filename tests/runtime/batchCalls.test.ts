/** What is asked at the same time goes in one call, and everyone gets their own answer. */
import { batchCalls } from '../../runtime/batchCalls'

const nextTurn = () => new Promise(resolve => setImmediate(resolve))
const never = { most: 10, isOfOne: () => false }

test('what is asked in one turn of the event loop is one call, and what comes meanwhile is the next', async () => {
  const calls: (readonly number[])[] = []
  let go: () => void = () => {}
  const ask = batchCalls(async (items: readonly number[]) => {
    calls.push(items)
    await new Promise<void>(resolve => {
      go = resolve
    })
    return items.map(item => item * 10)
  }, never)
  const first = [1, 2, 3].map(ask)
  await nextTurn()
  const second = [4, 5].map(ask)
  await nextTurn()
  expect(calls).toEqual([[1, 2, 3]])
  go()
  expect(await Promise.all(first)).toEqual([10, 20, 30])
  await nextTurn()
  go()
  expect(await Promise.all(second)).toEqual([40, 50])
  expect(calls).toEqual([
    [1, 2, 3],
    [4, 5],
  ])
})

test('a call has at most as many items as it may have', async () => {
  const sizes: number[] = []
  const ask = batchCalls(
    async (items: readonly number[]) => {
      sizes.push(items.length)
      return items
    },
    { ...never, most: 2 },
  )
  expect(await Promise.all([1, 2, 3, 4, 5].map(ask))).toEqual([1, 2, 3, 4, 5])
  expect(sizes).toEqual([2, 2, 1])
})

test('an item that is to blame fails alone, and a failure of the call itself fails all and is over', async () => {
  let lost = false
  const ask = batchCalls(
    async (items: readonly string[]) => {
      if (lost) throw new Error('lost')
      if (items.includes('bad')) throw new Error('refused')
      return items.map(item => item.toUpperCase())
    },
    { most: 10, isOfOne: error => error.message === 'refused' },
  )
  const outcomes = await Promise.allSettled(['a', 'bad', 'b'].map(ask))
  expect(outcomes.map(o => (o.status === 'fulfilled' ? o.value : o.reason.message))).toEqual(['A', 'refused', 'B'])
  lost = true
  const failed = await Promise.allSettled(['a', 'b'].map(ask))
  expect(failed.map(o => o.status)).toEqual(['rejected', 'rejected'])
  lost = false
  expect(await ask('c')).toBe('C')
})
