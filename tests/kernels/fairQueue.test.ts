import fc from 'fast-check'
import { FairQueue } from '../../kernels'

const items = fc.array(fc.record({ client: fc.constantFrom('a', 'b', 'c', 'd'), n: fc.nat() }), { maxLength: 60 })

function drain<T>(queue: FairQueue<T>): T[] {
  const taken: T[] = []
  for (let item = queue.take(); item !== undefined; item = queue.take()) taken.push(item)
  return taken
}

test('whatever is put in comes out once, and of one client in its order', () =>
  fc.assert(
    fc.property(items, given => {
      const queue = new FairQueue<{ client: string; n: number }>()
      for (const item of given) queue.push(item.client, item)
      expect(queue.size).toBe(given.length)
      const taken = drain(queue)
      expect(queue.size).toBe(0)
      expect(new Set(taken).size).toBe(given.length)
      for (const client of ['a', 'b', 'c', 'd']) {
        expect(taken.filter(i => i.client === client)).toEqual(given.filter(i => i.client === client))
      }
    }),
  ))

test('while two clients both wait, neither is served twice in a row more than the other', () =>
  fc.assert(
    fc.property(items, given => {
      const queue = new FairQueue<string>()
      const left = new Map<string, number>()
      for (const [k, { client }] of given.entries()) {
        queue.push(client, `${client}${k}`)
        left.set(client, (left.get(client) ?? 0) + 1)
      }
      let before: string | undefined
      for (const item of drain(queue)) {
        const client = item[0]!
        const others = [...left].some(([other, n]) => other !== client && n > 0)
        if (others) expect(client).not.toBe(before)
        left.set(client, left.get(client)! - 1)
        before = client
      }
    }),
  ))

test('what is put first goes before all, in its order; peek says what take will return', () => {
  const queue = new FairQueue<string>()
  queue.push('a', 'a0')
  queue.pushFirst('b', 'b0')
  queue.pushFirst('a', 'a1')
  expect(queue.peek()).toBe('b0')
  expect(drain(queue)).toEqual(['b0', 'a1', 'a0'])
  expect(queue.peek()).toBeUndefined()
})

test('a removed item does not come out, a cleared client has nothing left, and the others keep theirs', () => {
  const queue = new FairQueue<string>()
  for (const item of ['a0', 'a1', 'b0', 'b1']) queue.push(item[0]!, item)
  queue.pushFirst('a', 'a2')
  expect(queue.remove('b', 'b0')).toBe(true)
  expect(queue.remove('b', 'b0')).toBe(false)
  expect(queue.clear('a')).toEqual(['a2', 'a0', 'a1'])
  expect(queue.size).toBe(1)
  expect(drain(queue)).toEqual(['b1'])
})
