/** RoC: the counts of the paper and of the release, its lawful outcomes, and what the draws are weighted by. */
import fc from 'fast-check'
import { advantages } from '../../../kernels/selection/advantages'
import {
  errorPenalty,
  formatPenalty,
  type GroupMember,
  roundHalfEven,
  type SelectionOptions,
  selectGroup,
  selectionCounts,
} from '../../../kernels/selection/roc'

const base: SelectionOptions = { variant: 'paper', keep: 16, seed: 1 }

function member(index: number, reward: number, rest: Partial<GroupMember> = {}): GroupMember {
  return { member: index, reward, toolCalls: 2, toolErrors: 0, answerTags: 1, turns: 3, ...rest }
}

const group = (positives: number, size: number): GroupMember[] =>
  Array.from({ length: size }, (_, i) => member(i, i < positives ? 1 : 0))

const anyMembers = fc.uniqueArray(fc.nat({ max: 500 }), { maxLength: 48 }).chain(indices =>
  fc.tuple(
    ...indices.map(index =>
      fc.record({
        member: fc.constant(index),
        reward: fc.constantFrom(0, 0, 1, 0.5),
        toolCalls: fc.constant(4),
        toolErrors: fc.integer({ min: 0, max: 4 }),
        answerTags: fc.integer({ min: 0, max: 9 }),
        turns: fc.integer({ min: 0, max: 6 }),
      }),
    ),
  ),
)

const anyOptions = fc.record({
  variant: fc.constantFrom('paper' as const, 'release' as const, 'none' as const),
  keep: fc.integer({ min: 1, max: 20 }),
  seed: fc.nat(),
  minNegative: fc.integer({ min: -1, max: 5 }),
  minPositive: fc.integer({ min: -1, max: 5 }),
  rejectEqual: fc.boolean(),
  errorRatio: fc.boolean(),
  answerFormat: fc.boolean(),
  positiveAbove: fc.constantFrom(0, 0.5, 0.9),
})

test('p_err is the share of failed calls, and a half without any', () => {
  expect([errorPenalty(0, 0), errorPenalty(0, 4), errorPenalty(1, 4), errorPenalty(4, 4)]).toEqual([0.5, 0, 0.25, 1])
})

test('p_format is 1 without an answer tag, 0 with one, and grows with each further one to at most 1', () => {
  expect([formatPenalty(0, 3), formatPenalty(1, 3), formatPenalty(2, 4), formatPenalty(9, 4)]).toEqual([1, 0, 0.25, 1])
  expect(formatPenalty(1, 0)).toBe(1)
})

test('halves are rounded to the even neighbour', () => {
  expect([1, 3, 5, 7].map(n => roundHalfEven(n, 2))).toEqual([0, 2, 2, 4])
  expect([roundHalfEven(4, 3), roundHalfEven(5, 3), roundHalfEven(0, 3)]).toEqual([1, 2, 0])
})

test('the paper halves the negatives downwards and fills up with positives', () => {
  for (let positives = 0; positives <= 32; positives++) {
    const counts = selectionCounts('paper', positives, 32 - positives, 16, 0, 0)
    expect(counts).toEqual({ k0: Math.floor((32 - positives) / 2), k1: 16 - Math.floor((32 - positives) / 2) })
  }
})

test('the release rounds halves to even: 1 positive of 32 gives 1 + 15, 3 give 2 + 14, 5 give 2 + 14, 7 give 4 + 12', () => {
  const counts = (positives: number) => selectionCounts('release', positives, 32 - positives, 16)
  expect(counts(1)).toEqual({ k1: 1, k0: 15 })
  expect(counts(3)).toEqual({ k1: 2, k0: 14 })
  expect(counts(5)).toEqual({ k1: 2, k0: 14 })
  expect(counts(7)).toEqual({ k1: 4, k0: 12 })
  expect(counts(31)).toEqual({ k1: 15, k0: 1 })
})

test('both variants keep at least two of each side where there are two', () => {
  for (const variant of ['paper', 'release'] as const) {
    expect(selectionCounts(variant, 2, 30, 16)).toEqual({ k1: 2, k0: 14 })
    expect(selectionCounts(variant, 30, 2, 16)).toEqual({ k1: 14, k0: 2 })
    expect(selectionCounts(variant, 31, 1, 16)).toEqual({ k1: 15, k0: 1 })
  }
})

test('a group is rejected, kept whole, or exactly G, whatever its rewards', () => {
  fc.assert(
    fc.property(anyMembers, anyOptions, (members, options) => {
      const selection = selectGroup(members, options)
      const indices = members.map(one => one.member).sort((a, b) => a - b)
      expect(selection.explain.members.map(one => one.member)).toEqual(indices)
      if (selection.kind === 'rejected') {
        const equal = new Set(members.map(one => one.reward)).size <= 1
        if (selection.reason === 'too-few-rewarded') expect(members.length).toBeLessThan(options.keep)
        else expect(options.rejectEqual && equal).toBe(true)
        return
      }
      expect(members.length).toBeGreaterThanOrEqual(options.keep)
      const kept = selection.kept.map(one => one.member)
      const dropped = selection.dropped.map(one => one.member)
      expect([...kept, ...dropped].sort((a, b) => a - b)).toEqual(indices)
      expect(kept).toHaveLength(selection.kind === 'whole' ? members.length : options.keep)
      expect(selection.kept.map(one => one.advantage)).toEqual(advantages(selection.kept.map(one => one.reward)))
      expect(selection.explain.members.filter(one => one.kept).map(one => one.member)).toEqual(kept)
    }),
    { numRuns: 500 },
  )
})

test('the order in which members finished changes nothing', () => {
  fc.assert(
    fc.property(
      anyMembers.chain(members =>
        fc.tuple(fc.constant(members), fc.shuffledSubarray(members, { minLength: members.length })),
      ),
      anyOptions,
      ([members, shuffled], options) => {
        expect(selectGroup(shuffled, options)).toEqual(selectGroup(members, options))
      },
    ),
  )
})

test('the same group is decided otherwise under another seed, and the same under the same', () => {
  const kept = (seed: number) => {
    const selection = selectGroup(group(16, 32), { ...base, seed })
    return selection.kind === 'selected' ? selection.kept.map(one => one.member).join() : ''
  }
  expect(kept(5)).toBe(kept(5))
  expect(new Set([1, 2, 3, 4, 5].map(kept)).size).toBeGreaterThan(1)
})

test('fewer than G rewarded, and rewards all equal, are rejected with the reason', () => {
  expect(selectGroup(group(3, 15), base)).toMatchObject({ kind: 'rejected', reason: 'too-few-rewarded' })
  expect(selectGroup([], base)).toMatchObject({ kind: 'rejected', reason: 'too-few-rewarded' })
  for (const positives of [0, 32]) {
    const rejected = selectGroup(group(positives, 32), base)
    expect(rejected).toMatchObject({ kind: 'rejected', reason: 'equal-rewards', explain: { rewarded: 32 } })
    const kept = selectGroup(group(positives, 32), { ...base, rejectEqual: false })
    expect(kept).toMatchObject({ kind: 'selected', kept: { length: 16 } })
  }
})

test('exactly G rewarded members are all kept', () => {
  expect(selectGroup(group(4, 16), base)).toMatchObject({ kind: 'whole', reason: 'exactly-keep', dropped: [] })
})

test('both sides below their floor keeps the group whole and says so', () => {
  const selection = selectGroup(group(2, 4), { ...base, keep: 2 })
  expect(selection).toMatchObject({ kind: 'whole', reason: 'below-floors', kept: { length: 4 } })
})

test('the release keeps the positives of lowest penalty and the first negatives, ties by index', () => {
  const members = Array.from({ length: 8 }, (_, i) =>
    member(i, i % 2, { toolCalls: 4, toolErrors: i === 1 ? 4 : i === 3 ? 1 : 0 }),
  )
  const selection = selectGroup(members, { ...base, variant: 'release', keep: 4 })
  if (selection.kind !== 'selected') throw new Error(selection.kind)
  expect(selection.kept.map(one => one.member)).toEqual([0, 2, 5, 7])
  const byOrder = selectGroup(members, { ...base, variant: 'release', keep: 4, errorRatio: false, answerFormat: false })
  expect(byOrder).toMatchObject({ kept: [{ member: 0 }, { member: 1 }, { member: 2 }, { member: 3 }] })
})

test('the paper draws positives with probability inverse to their penalty, and negatives alike', () => {
  // One positive of each penalty is drawn first where one is kept: shares are then 1/p normalised.
  const errors = [1, 2, 4]
  const members = [
    ...errors.map((toolErrors, i) => member(i, 1, { toolCalls: 4, toolErrors })),
    ...Array.from({ length: 9 }, (_, i) => member(10 + i, 0, { toolCalls: 4, toolErrors: i % 5 })),
  ]
  const rounds = 20_000
  const counts = new Map<number, number>()
  for (let seed = 0; seed < rounds; seed++) {
    const selection = selectGroup(members, { ...base, keep: 4, minPositive: 1, seed })
    if (selection.kind !== 'selected') throw new Error(selection.kind)
    expect(selection.explain).toMatchObject({ keptPositives: 1, keptNegatives: 3 })
    for (const one of selection.kept) counts.set(one.member, (counts.get(one.member) ?? 0) + 1)
  }
  const weights = errors.map(e => 1 / (e / 4))
  const total = weights.reduce((a, b) => a + b)
  weights.forEach((weight, i) => {
    expect(Math.abs(counts.get(i)! / rounds - weight / total)).toBeLessThan(0.012)
  })
  for (let i = 10; i < 19; i++) expect(Math.abs(counts.get(i)! / rounds - 3 / 9)).toBeLessThan(0.012)
})

test('a penalty of 0 weighs 1e6, not infinity, and stands in the explanation', () => {
  const selection = selectGroup(group(16, 32), base)
  expect(selection.explain.members[0]).toMatchObject({ penalty: 0, errorPenalty: 0, formatPenalty: 0 })
  expect(selection.explain.members[0]!.weight).toBeCloseTo(1e6, 3)
  expect(selection.explain.members[20]!.weight).toBeNull()
  expect(selection.explain.generator).toBe('pcg32')
})

test('epsilon bounds how much a clean rollout outweighs one without a tool call: 500,000 at 1e-6, 6 at 0.1', () => {
  const members = group(16, 32).map(one => ({ ...one, toolErrors: 0, toolCalls: one.member === 1 ? 0 : 4 }))
  const ratio = (epsilon: number): number => {
    const { members: explained } = selectGroup(members, { ...base, epsilon }).explain
    return explained[0]!.weight! / explained[1]!.weight!
  }
  expect(ratio(1e-6)).toBeCloseTo(500_001, 0)
  expect(ratio(0.1)).toBeCloseTo(6, 9)
})

test('without RoC, G members are kept uniformly, whatever their penalty and reward', () => {
  const members = group(4, 8).map(one => ({ ...one, toolErrors: one.member % 3 }))
  const counts = new Array<number>(8).fill(0)
  for (let seed = 0; seed < 8000; seed++) {
    const selection = selectGroup(members, { ...base, variant: 'none', keep: 4, seed })
    if (selection.kind === 'selected') for (const one of selection.kept) counts[one.member]!++
  }
  for (const count of counts) expect(Math.abs(count / 8000 - 0.5)).toBeLessThan(0.025)
})

test('a member twice, more failed calls than calls, and a reward that is not finite are refused', () => {
  expect(() => selectGroup([member(1, 0), member(1, 1)], base)).toThrow('member 1 occurs twice')
  expect(() => selectGroup([member(1, 0, { toolErrors: 3 })], base)).toThrow(
    '3 failed tool calls, expected at most its 2 tool calls',
  )
  expect(() => selectGroup([member(1, Number.NaN)], base)).toThrow(RangeError)
  expect(() => selectGroup(group(1, 4), { ...base, keep: 0 })).toThrow(RangeError)
})

test('a reward above positiveAbove is a positive, whatever its size; advantages are of the rewards themselves', () => {
  const members = [0.1, 0.4, 0.6, 0.9].map((reward, at) => member(at, reward))
  const counts = (positiveAbove: number) => {
    const { explain } = selectGroup(members, { ...base, keep: 4, positiveAbove })
    return [explain.positives, explain.negatives]
  }
  expect([counts(0), counts(0.5), counts(0.6), counts(1)]).toEqual([
    [4, 0],
    [2, 2],
    [1, 3],
    [0, 4],
  ])
  const chosen = selectGroup(members, { ...base, keep: 2, minPositive: 1, minNegative: 1, positiveAbove: 0.5 })
  if (chosen.kind !== 'selected') throw new Error(chosen.kind)
  expect(chosen.kept.map(k => k.reward > 0.5).sort()).toEqual([false, true])
  expect(chosen.kept.map(k => k.advantage)).toEqual(advantages(chosen.kept.map(k => k.reward)))
})

test('all keeps every rewarded member, however many, and still rejects equal rewards', () => {
  const select = (members: readonly GroupMember[], rest: Partial<SelectionOptions> = {}) =>
    selectGroup(members, { ...base, variant: 'all', keep: 16, ...rest })
  for (const size of [2, 16, 32]) {
    const whole = select(group(1, size))
    expect(whole).toMatchObject({ kind: 'whole', reason: 'all', dropped: [] })
    expect(whole.kind === 'whole' && whole.kept.map(k => k.member)).toEqual(Array.from({ length: size }, (_, i) => i))
    expect(whole.kind === 'whole' && whole.kept.map(k => k.advantage)).toEqual(
      advantages([1, ...Array.from({ length: size - 1 }, () => 0)]),
    )
  }
  expect(select(group(1, 1))).toMatchObject({ kind: 'rejected', reason: 'too-few-rewarded' })
  expect(select(group(32, 32))).toMatchObject({ kind: 'rejected', reason: 'equal-rewards' })
  expect(select(group(32, 32), { rejectEqual: false })).toMatchObject({ kind: 'whole' })
})
