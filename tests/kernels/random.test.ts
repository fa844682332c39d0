/** The generator against its published outputs; samples without replacement against the probabilities they promise. */
import fc from 'fast-check'
import { pcg32, sampleUniform, sampleWeighted } from '../../kernels/random'

test('seed 42 on stream 54 gives the outputs of the published PCG32 demo', () => {
  const random = pcg32(42, 54)
  const outputs = Array.from({ length: 6 }, () => random.uint32())
  expect(outputs).toEqual([0xa15c02b7, 0x7b47f409, 0xba1d3330, 0x83d2f293, 0xbfa4784b, 0xcbed606e])
})

test('a seed that is no uint32 is refused', () => {
  for (const seed of [-1, 0.5, 2 ** 32, Number.NaN]) expect(() => pcg32(seed)).toThrow(RangeError)
})

test('uniform numbers lie in [0, 1) and average to a half', () => {
  const random = pcg32(7)
  const drawn = Array.from({ length: 20_000 }, () => random.uniform())
  expect(Math.min(...drawn)).toBeGreaterThanOrEqual(0)
  expect(Math.max(...drawn)).toBeLessThan(1)
  expect(drawn.reduce((a, b) => a + b) / drawn.length).toBeCloseTo(0.5, 2)
})

test('a sample holds each item at most once and as many as asked for', () => {
  fc.assert(
    fc.property(
      fc.nat(),
      fc.array(fc.double({ min: 1e-6, max: 1e6, noNaN: true }), { maxLength: 40 }),
      fc.nat(),
      (seed, weights, n) => {
        const items = weights.map((weight, i) => ({ i, weight }))
        const count = items.length === 0 ? 0 : n % (items.length + 1)
        for (const sample of [
          sampleWeighted(pcg32(seed), items, item => item.weight, count),
          sampleUniform(pcg32(seed), items, count),
        ]) {
          expect(sample).toHaveLength(count)
          expect(new Set(sample).size).toBe(count)
        }
      },
    ),
  )
})

test('two weighted draws follow the probabilities of successive draws', () => {
  const weights = [1, 2, 5]
  const random = pcg32(11)
  const seen = new Map<string, number>()
  const rounds = 30_000
  for (let i = 0; i < rounds; i++) {
    const key = sampleWeighted(random, [0, 1, 2], one => weights[one]!, 2).join()
    seen.set(key, (seen.get(key) ?? 0) + 1)
  }
  for (const a of [0, 1, 2]) {
    for (const b of [0, 1, 2]) {
      if (a === b) continue
      const expected = (weights[a]! / 8) * (weights[b]! / (8 - weights[a]!))
      expect(Math.abs((seen.get(`${a},${b}`) ?? 0) / rounds - expected)).toBeLessThan(0.01)
    }
  }
})

test('a uniform sample takes every item equally often', () => {
  const random = pcg32(12)
  const counts = new Array<number>(10).fill(0)
  for (let i = 0; i < 20_000; i++) for (const one of sampleUniform(random, [...counts.keys()], 3)) counts[one]!++
  for (const count of counts) expect(Math.abs(count / 20_000 - 0.3)).toBeLessThan(0.015)
})

test('more items than there are, and weights that are none, are refused', () => {
  expect(() => sampleUniform(pcg32(1), [1], 2)).toThrow(RangeError)
  expect(() => sampleWeighted(pcg32(1), [1, 2], () => 0, 1)).toThrow(RangeError)
  expect(() => sampleWeighted(pcg32(1), [1, 2], () => Number.POSITIVE_INFINITY, 1)).toThrow(RangeError)
})
