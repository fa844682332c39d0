/** Every sequence lands in exactly one part; budgets hold; ranks get about the same number of tokens. */
import fc from 'fast-check'
import { balanceOverRanks, packConsecutive } from '../../kernels/packing'

const anyLengths = fc.array(fc.integer({ min: 0, max: 300 }), { maxLength: 60 })

test('micro-batches are consecutive, complete, and within the budget unless one sequence alone is longer', () => {
  fc.assert(
    fc.property(
      anyLengths,
      fc.integer({ min: 1, max: 500 }),
      fc.constantFrom('sum' as const, 'padded' as const),
      (lengths, maxTokens, measure) => {
        const batches = packConsecutive(lengths, { maxTokens, measure })
        expect(batches.flatMap(batch => batch.sequences)).toEqual(lengths.map((_, i) => i))
        batches.forEach((batch, b) => {
          const own = batch.sequences.map(i => lengths[i]!)
          const cost = (all: number[]) =>
            measure === 'sum' ? all.reduce((x, y) => x + y, 0) : all.length * Math.max(...all)
          expect(batch.tokens).toBe(cost(own))
          if (own.length > 1) expect(batch.tokens).toBeLessThanOrEqual(maxTokens)
          const next = batches[b + 1]
          if (next) expect(cost([...own, lengths[next.sequences[0]!]!])).toBeGreaterThan(maxTokens)
        })
      },
    ),
  )
})

test('ranks get every sequence once and never differ by more than the longest one', () => {
  fc.assert(
    fc.property(anyLengths, fc.integer({ min: 1, max: 9 }), (lengths, ranks) => {
      const parts = balanceOverRanks(lengths, ranks)
      expect(parts).toHaveLength(ranks)
      expect(parts.flatMap(part => part.sequences).sort((a, b) => a - b)).toEqual(lengths.map((_, i) => i))
      for (const part of parts) expect(part.tokens).toBe(part.sequences.reduce((sum, i) => sum + lengths[i]!, 0))
      const sums = parts.map(part => part.tokens)
      expect(Math.max(...sums) - Math.min(...sums)).toBeLessThanOrEqual(Math.max(0, ...lengths))
    }),
  )
})

test('differencing finds the even split that taking turns would miss', () => {
  const sums = balanceOverRanks([10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 1], 2).map(part => part.tokens)
  expect(sums).toEqual([28, 28])
})

test('lengths that are none, and no ranks, are refused', () => {
  expect(() => packConsecutive([1.5], { maxTokens: 4 })).toThrow('sequence 0 has a length of 1.5')
  expect(() => packConsecutive([1], { maxTokens: 0 })).toThrow(RangeError)
  expect(() => balanceOverRanks([1], 0)).toThrow(RangeError)
})
