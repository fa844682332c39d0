/** Keys of a long list's rows: which elements a row that scrolls in takes over. */
import fc from 'fast-check'
import { rowKeys } from '../../dashboard/page/parts/rowKeys'

const range = (from: number, count: number) => Array.from({ length: count }, (_, i) => from + i)

test('a row keeps its elements while it stays in view, and one that scrolls in takes those of one that left', () => {
  const keysOf = rowKeys()
  const before = keysOf(range(100, 30))
  const after = keysOf(range(107, 30))
  expect(after.slice(0, 23)).toEqual(before.slice(7))
  expect([...after].sort((a, b) => a - b)).toEqual(range(0, 30))
})

test('after a jump the keys follow the order on screen, so that no element has to move', () => {
  const keysOf = rowKeys()
  keysOf(range(0, 30))
  keysOf(range(7, 30))
  expect(keysOf(range(47, 30))).toEqual(range(0, 30))
})

test('however a list is scrolled, the keys of one drawing differ and are fewer than the most rows drawn', () => {
  const drawings = fc.array(fc.tuple(fc.nat(200), fc.integer({ min: 0, max: 40 })), { maxLength: 30 })
  fc.assert(
    fc.property(drawings, all => {
      const keysOf = rowKeys()
      for (const [from, count] of all) {
        const keys = keysOf(range(from, count))
        expect(new Set(keys).size).toBe(count)
        expect(Math.max(-1, ...keys)).toBeLessThan(Math.max(...all.map(([, most]) => most), 1))
      }
    }),
  )
})
