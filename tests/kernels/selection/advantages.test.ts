/** Advantages against their formula, and the groups that teach nothing. */
import fc from 'fast-check'
import { advantages } from '../../../kernels/selection/advantages'

test('one right of four gets (r - mean) / (unbiased std + 1e-6)', () => {
  const std = Math.sqrt((0.75 ** 2 + 3 * 0.25 ** 2) / 3)
  const [right, ...wrong] = advantages([1, 0, 0, 0])
  expect(right).toBeCloseTo(0.75 / (std + 1e-6), 12)
  for (const one of wrong) expect(one).toBeCloseTo(-0.25 / (std + 1e-6), 12)
})

test('a group of one, of none, and of equal rewards gets exactly 0', () => {
  expect(advantages([])).toEqual([])
  expect(advantages([1])).toEqual([0])
  fc.assert(
    fc.property(fc.double({ noNaN: true, noDefaultInfinity: true }), fc.integer({ min: 1, max: 40 }), (reward, n) => {
      expect(advantages(new Array(n).fill(reward)).every(one => one === 0)).toBe(true)
    }),
  )
})

test('advantages of a mixed group sum to 0, and better rewards have larger ones', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 3 }), { minLength: 2, maxLength: 32 }), rewards => {
      const values = advantages(rewards)
      expect(Math.abs(values.reduce((a, b) => a + b, 0))).toBeLessThan(1e-9)
      rewards.forEach((a, i) => {
        rewards.forEach((b, j) => {
          if (a > b) expect(values[i]!).toBeGreaterThan(values[j]!)
        })
      })
    }),
  )
})

test('a reward that is not finite is refused', () => {
  expect(() => advantages([1, Number.NaN])).toThrow(RangeError)
})
