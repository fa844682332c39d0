/** Promise: a cold start's progress is in the log, percent by percent, with an estimate of the time left. */
import { recordProgress } from '../../../actors/learning/coldStartProgress'
import type { StageProgressed } from '../../../messages/facts'
import { epoch } from '../../../messages/ids'
import { manualEffects } from '../../../runtime/effects'

function rig(append: (fact: StageProgressed) => Promise<void> = async () => {}) {
  const fx = manualEffects()
  const facts: StageProgressed[] = []
  const { report, recorded } = recordProgress({
    epoch: epoch(7),
    fx,
    append: fact => {
      facts.push(fact)
      return append(fact)
    },
  })
  const reports = (times: readonly (readonly [afterMs: number, done: number])[]) => {
    for (const [afterMs, done] of times) {
      fx.advance(afterMs)
      report(done, 1)
    }
    return facts.map(fact => fact.done)
  }
  return { reports, recorded, facts }
}

test('a fact is written for the first report, for each further percent, and after 30 s without one', () => {
  const updates = Array.from({ length: 1000 }, (_, i) => [1, (i + 1) / 1000] as const)
  expect(rig().reports(updates)).toHaveLength(101)
  const slow = rig().reports([
    ...([[1, 0.001] as const, [29_998, 0.002] as const, [1, 0.003] as const, [30_000, 0.004] as const] as const),
  ])
  expect(slow).toEqual([0.001, 0.004])
})

test('the time left follows from the reports of this start, however much an earlier one had done', () => {
  const { reports, facts } = rig()
  reports([
    [10, 0.5],
    [5000, 0.6],
  ])
  expect(facts[0]).not.toHaveProperty('leftSeconds')
  expect(facts[1]!.leftSeconds).toBeCloseTo(20)
})

test('a fact that cannot be written is an error of the cold start, not lost', async () => {
  const { reports, recorded } = rig(async () => {
    throw new Error('no room')
  })
  reports([[1, 0.5]])
  await expect(recorded()).rejects.toThrow('no room')
})
