/** pass@k: the unbiased estimate equals the mean over all choices of k answers, whatever the rewards. */
import fc from 'fast-check'
import { expectedBest } from '../../kernels'

const choices = (values: readonly number[], k: number): number[][] =>
  k === 0 ? [[]] : values.flatMap((v, i) => choices(values.slice(i + 1), k - 1).map(rest => [v, ...rest]))

test('it is the mean of the best over every choice of k answers', () => {
  const rewards = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { minLength: 1, maxLength: 8 })
  fc.assert(
    fc.property(rewards, fc.nat(), (values, pick) => {
      const k = 1 + (pick % values.length)
      const best = choices(values, k).map(choice => Math.max(...choice))
      expect(expectedBest(values, k)).toBeCloseTo(best.reduce((a, b) => a + b) / best.length, 9)
    }),
  )
})

test('of 10 answers with 3 solved, pass@1, pass@5 and pass@10 are 0.3, 1 - 21/252 and 1', () => {
  const rewards = [0, 1, 0, 0, 1, 0, 0, 0, 1, 0]
  expect(expectedBest(rewards, 1)).toBeCloseTo(0.3, 12)
  expect(expectedBest(rewards, 5)).toBeCloseTo(1 - 21 / 252, 12)
  expect(expectedBest(rewards, 10)).toBe(1)
})

test('thousands of answers neither overflow nor lose the sum of shares', () => {
  expect(expectedBest(new Array<number>(4096).fill(1), 1024)).toBeCloseTo(1, 9)
})

test('a k that no choice can have is refused', () => {
  for (const k of [0, 4, 1.5]) expect(() => expectedBest([0, 1, 0], k)).toThrow('expected a whole number from 1 to 3')
})
