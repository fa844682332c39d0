/** What a step shows only beside others, and what its turns cost: metrics that alarms look at. */
import fc from 'fast-check'
import { nextTally, noTallies, tally } from '../../../actors/curriculum/tally'
import { trends } from '../../../actors/curriculum/trends'
import { addTurn, endTrajectory, noTurns, type TurnSums, turnMetrics } from '../../../actors/curriculum/turnSums'
import type { Fact, Metrics, TrajectoryFact } from '../../../messages/facts'
import { epoch, groupId, trajectoryId } from '../../../messages/ids'

const steps = (name: string, values: readonly number[]): Metrics[] => values.map(value => ({ [name]: value }))
const trendOf = (name: string, values: readonly number[]) => {
  const all = steps(name, values)
  return trends(all.slice(0, -1), all.at(-1)!)
}

test('a spike is told against the median of the steps before, once there are five', () => {
  expect(trendOf('gradNorm', [1, 1, 1, 1, 9])).toEqual({})
  expect(trendOf('gradNorm', [1, 2, 3, 2, 1, 10])).toEqual({ gradNormRatio: 5 })
  expect(trendOf('meanTokens', [100, 100, 100, 100, 100, 250])).toEqual({ meanTokensRatio: 2.5 })
  expect(trendOf('gradNorm', [0, 0, 0, 0, 0, 1])).toEqual({})
})

test('a drop is from the best five steps in a row to the latest five', () => {
  const plateau = [0.1, 0.5, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8]
  expect(trendOf('passAt1', [...plateau, 0.8, 0.8]).passAt1Drop).toBe(0)
  expect(trendOf('passAt1', [...plateau, 0.3, 0.3, 0.3, 0.3, 0.3]).passAt1Drop).toBeCloseTo(0.5)
  fc.assert(
    fc.property(fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { minLength: 10, maxLength: 21 }), values => {
      expect(trendOf('passAt1', values).passAt1Drop).toBeGreaterThanOrEqual(0)
    }),
  )
})

test('failed calls in positives are told while the reward rises and they do not fall', () => {
  const both = (rewards: readonly number[], errors: readonly number[]) => {
    const all = rewards.map((passAt1, at) => ({ passAt1, toolErrorRateInPositives: errors[at]! }))
    return trends(all.slice(0, -1), all.at(-1)!).toolErrorsDespiteReward
  }
  const rising = [1, 1, 1, 1, 1, 2, 2, 2, 2, 2].map(v => v / 10)
  const flat = Array.from({ length: 10 }, () => 0.2)
  expect(both(rising, flat)).toBeCloseTo(0.2)
  expect(both(rising, [...rising].reverse())).toBe(0)
  expect(both(flat, flat)).toBe(0)
  expect(both(rising.slice(1), flat)).toBeUndefined()
})

const trajectory = trajectoryId(groupId('s0001.0000'), 0)
const asked = (turn: number, contextTokens: number, attempt = 0) =>
  ({
    type: 'turn.asked',
    at: 0,
    trajectory,
    turn,
    attempt,
    contextTokens,
    epoch: epoch(0),
  }) as unknown as TrajectoryFact
const sampled = (turn: number, tokens: number, cachedTokens: number, policyVersion = 0) =>
  ({
    ...{ type: 'turn.completed', at: 0, trajectory, turn, attempt: 0, tokens: new Int32Array(tokens), cachedTokens },
    ...{ preemptions: 1, segments: [{ policyVersion, start: 0, end: tokens }] },
  }) as unknown as TrajectoryFact
const sumsOf = (...facts: readonly TrajectoryFact[]): TurnSums =>
  facts.reduce((sums, fact) => addTurn(sums, fact as Parameters<typeof addTurn>[1]), noTurns)

test('recomputed is what was computed before and was not cached; each turn counts once', () => {
  // 100 of prompt, 20 sampled, 30 of a tool's answer: the second turn could have found 120 in a cache, and found 48.
  const facts = [asked(0, 100), sampled(0, 20, 0), sampled(0, 20, 0), asked(1, 150), sampled(1, 10, 48)]
  const sums = sumsOf(...facts)
  expect(sums).toMatchObject({ turns: 2, sampled: 30, recomputed: 72, preemptions: 2 })
  expect(turnMetrics(sums, 0)).toEqual({ preemptionsPerTurn: 1, recomputedShare: 2.4, staleness: 0 })
  expect(endTrajectory(sums, trajectory).open.size).toBe(0)
  expect(turnMetrics(noTurns, 0)).toEqual({})
})

test('staleness is the mean age of the sampled tokens, in versions', () => {
  expect(turnMetrics(sumsOf(asked(0, 10), sampled(0, 20, 0, 3), asked(1, 40), sampled(1, 20, 30, 5)), 6)).toMatchObject(
    {
      staleness: 2,
    },
  )
})

test('a turn that was interrupted makes its context known to a cache', () => {
  const interrupted = { ...sampled(0, 5, 0), type: 'turn.interrupted' } as TrajectoryFact
  const late = sampled(0, 99, 0) // of the attempt that is over
  const again = { ...sampled(0, 10, 0), attempt: 1 } as TrajectoryFact
  const sums = sumsOf(asked(0, 100), interrupted, asked(0, 105, 1), late, again)
  expect(sums).toMatchObject({ turns: 1, sampled: 15, recomputed: 105 })
})

test('where arithmetic says otherwise than the grader for mathematics is a share of what it can tell', () => {
  const group = groupId('s0001.0000')
  let state = noTallies
  const put = (fact: object) => {
    state = tally(state, fact as Fact)
  }
  put({ type: 'curriculum.advanced', purpose: 'train', step: 1, groups: [group], cursor: 0, order: 0 })
  put({ type: 'rollout.requested', group, task: { truth: '\\boxed{1/2}' } })
  const judged: [string, number, string][] = [
    ['0.5', 1, 'math-verify'],
    ['0.5', 0, 'math-verify-timeout'],
    ['3', 1, 'integer'],
    ['x + 1', 0, 'math-verify'],
    ['7', 1, 'exact'],
  ]
  for (const [member, [answer, reward, how]] of judged.entries()) {
    put({ type: 'rollout.finished', trajectory: `${group}/${member}`, outcome: 'answered' })
    put({ type: 'reward.assigned', trajectory: `${group}/${member}`, attempt: 0, reward, answer, how })
  }
  put({ type: 'group.selected', step: 1, group })
  expect(nextTally(state, 1, 0)!.metrics).toMatchObject({ disagreeShare: 2 / 3, deadLetters: 0 })
})

test('trends of a step are of the steps told before it, and steps of groups that were all alike are counted', () => {
  let state = noTallies
  const put = (fact: object) => {
    state = tally(state, fact as Fact)
  }
  let last: Metrics = {}
  for (let step = 1; step <= 7; step++) {
    const groups = [`s000${step}.0000`, `s000${step}.0001`]
    put({ type: 'curriculum.advanced', purpose: 'train', step, groups, cursor: 0, order: 0 })
    put({ type: 'group.selected', step, group: groups[0] })
    put({ type: 'group.rejected', step, group: groups[1], reason: 'equal-rewards' })
    put({ type: 'step.completed', step, version: step, metrics: { gradNorm: step === 7 ? 12 : 2 } })
    const told = nextTally(state, step, 0)!
    last = told.metrics
    put({ type: 'step.tallied', at: 0, ...told })
  }
  expect(last).toMatchObject({ gradNormRatio: 6, equalShare: 0.5 })
  expect(state.steps.size).toBe(0)
})
