/** Axes of the page's charts: what a flat curve spans, and where an axis ends. */
import fc from 'fast-check'
import { valueRange } from '../../dashboard/page/parts/valueRange'

test('a single point lies in a narrow range around its value, and no share is drawn below 0 % or above 100 %', () => {
  expect(valueRange(0, 0, true).map(end => end.toFixed(3))).toEqual(['-0.004', '0.054'])
  expect(valueRange(1, 1, true).map(end => end.toFixed(3))).toEqual(['0.946', '1.004'])
  expect(valueRange(200, 200, false).map(Math.round)).toEqual([177, 223])
  expect(valueRange(0, 0, false)).toEqual([-0.08, 1.08])
  expect(valueRange(null, null, true)).toEqual([0, 1])
})

test('every value lies inside its axis, whatever the values', () => {
  const values = fc.tuple(fc.double({ min: -1e9, max: 1e9, noNaN: true }), fc.double({ min: 0, max: 1e9, noNaN: true }))
  fc.assert(
    fc.property(values, fc.boolean(), ([min, more], isShare) => {
      const [low, high] = valueRange(min, min + more, isShare)
      expect(low).toBeLessThanOrEqual(min)
      expect(high).toBeGreaterThanOrEqual(min + more)
      expect(high).toBeGreaterThan(low)
    }),
  )
})
