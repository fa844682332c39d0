/**
 * DAPO's soft punishment of long answers, alone and in the advantages of a group.
 */
import fc from 'fast-check'
import { advantages, type GroupMember, overlongPunishment, selectGroup } from '../../../kernels'

const dapo = { maxTokens: 20_480, bufferTokens: 4096 }

test('an answer is punished from the buffer on, linearly, up to the whole penalty at the limit', () => {
  expect(overlongPunishment(0, dapo)).toBe(0)
  expect(overlongPunishment(16_384, dapo)).toBe(0)
  expect(overlongPunishment(18_432, dapo)).toBe(-0.5)
  expect(overlongPunishment(20_480, dapo)).toBe(-1)
  expect(overlongPunishment(99_999, dapo)).toBe(-1)
  expect(overlongPunishment(18_432, { ...dapo, penalty: 0.2 })).toBeCloseTo(-0.1)
})

test('a longer answer is never punished less, and never by more than the penalty', () => {
  fc.assert(
    fc.property(fc.nat(30_000), fc.nat(30_000), fc.double({ min: 0, max: 2, noNaN: true }), (a, b, penalty) => {
      const [short, long] = a < b ? [a, b] : [b, a]
      const punished = overlongPunishment(long, { ...dapo, penalty })
      expect(punished).toBeLessThanOrEqual(overlongPunishment(short, { ...dapo, penalty }))
      expect(punished).toBeGreaterThanOrEqual(-penalty)
    }),
  )
})

test('a buffer larger than the limit, or none, is refused', () => {
  expect(() => overlongPunishment(1, { maxTokens: 10, bufferTokens: 11 })).toThrow(RangeError)
  expect(() => overlongPunishment(1, { maxTokens: 10, bufferTokens: 0 })).toThrow(RangeError)
})

test('the punishment changes advantages, and neither who is positive nor who is kept', () => {
  const members: GroupMember[] = Array.from({ length: 8 }, (_, member) => ({
    member,
    reward: member % 2,
    toolCalls: 1,
    toolErrors: 0,
    answerTags: 1,
    turns: 2,
    responseTokens: 15_000 + member * 1000,
  }))
  const options = { variant: 'paper', keep: 4, seed: 7 } as const
  const plain = selectGroup(members, options)
  const shaped = selectGroup(members, { ...options, overlong: dapo })
  if (plain.kind !== 'selected' || shaped.kind !== 'selected') throw new Error('both are selected')
  expect(shaped.kept.map(k => [k.member, k.reward])).toEqual(plain.kept.map(k => [k.member, k.reward]))
  const rewards = shaped.kept.map(k => k.reward + overlongPunishment(members[k.member]!.responseTokens!, dapo))
  expect(shaped.kept.map(k => k.advantage)).toEqual(advantages(rewards))
  expect(shaped.kept.map(k => k.advantage)).not.toEqual(plain.kept.map(k => k.advantage))
})

test('without the standard deviation an advantage is the reward less the mean, and equal rewards still teach nothing', () => {
  expect(advantages([1, 0, 0, 0], 'none')).toEqual([0.75, -0.25, -0.25, -0.25])
  expect(advantages([0.1, 0.1, 0.1], 'none')).toEqual([0, 0, 0])
  const members = [1, 0, 0, 0].map((reward, member) => ({
    member,
    reward,
    toolCalls: 0,
    toolErrors: 0,
    answerTags: 1,
    turns: 1,
  }))
  const selection = selectGroup(members, { variant: 'paper', keep: 4, seed: 1, advantage: 'none' })
  expect(selection.kind === 'whole' && selection.kept.map(k => k.advantage)).toEqual([0.75, -0.25, -0.25, -0.25])
})
