/** The simulator: small cases summed by hand from the formula in engineModel.ts, and what holds for any load and engine. */
import fc from 'fast-check'
import type { PolicyName } from '../../../kernels/scheduling/contract'
import { policies } from '../../../kernels/scheduling/scheduler'
import { type EngineModel, familyNames, type PrefillShape, stepMs } from '../../../kernels/simulator/engineModel'
import { lowerBoundMs } from '../../../kernels/simulator/lowerBound'
import { type SimulationOptions, simulate } from '../../../kernels/simulator/simulate'
import { finalTokens, sampledTokens, type TracedTrajectory } from '../../../kernels/simulator/trace'
import { baseShape, workload } from '../../../kernels/simulator/workload'

const names = Object.keys(policies) as PolicyName[]

const base: EngineModel = {
  name: 'small',
  family: 'vllm',
  kvTokens: 1600,
  blockTokens: 16,
  maxSequences: 8,
  maxBatchTokens: 512,
  prefixSharing: false,
  stepMs: {
    overhead: 1,
    denseFloor: 3,
    densePerToken: 0.02,
    decodeBase: 0.5,
    decodePerSequence: 0.07,
    decodePerKvToken: 0.0011,
    prefillBase: 0.3,
    prefillPerToken: 0.013,
    prefillPerPair: 0.00017,
  },
}

const line = (
  member: number,
  promptTokens: number,
  turns: readonly (number | readonly [number, number, number])[],
  rest: Partial<TracedTrajectory> = {},
): TracedTrajectory => ({
  trajectoryId: `g/${member}`,
  groupId: 'g',
  arrivalMs: 0,
  promptTokens,
  turns: turns.map(turn => {
    const [newTokens, toolMs, toolTokens] = typeof turn === 'number' ? [turn, 0, 0] : turn
    return { newTokens, toolMs, toolTokens }
  }),
  ...rest,
})

const run = (
  trace: readonly TracedTrajectory[],
  model: Partial<EngineModel> = {},
  options: Partial<SimulationOptions> = {},
) => simulate(trace, { model: { ...base, ...model }, engines: 1, policy: 'static-async', ...options })

/** The formula written out once more: decodes with what each attends to, chunks as [cached, new]. */
function step(attends: readonly number[], chunks: readonly (readonly [number, number])[] = []): number {
  const n = attends.length + chunks.reduce((sum, [, q]) => sum + q, 0)
  let ms = 1 + Math.sqrt(9 + (0.02 * n) ** 2)
  if (attends.length > 0) ms += 0.5 + 0.07 * attends.length + 0.0011 * attends.reduce((a, b) => a + b, 0)
  else ms += 0.3
  for (const [k, q] of chunks) ms += 0.013 * q + 0.00017 * q * (k + q / 2)
  return ms
}

const sumOf = (steps: readonly number[]): number => steps.reduce((a, b) => a + b, 0)
const upTo = (n: number): number[] => Array.from({ length: n }, (_, i) => i + 1)

test('a step costs what its parts cost', () => {
  const chunks: PrefillShape[] = [{ cachedTokens: 32, tokens: 100 }]
  expect(stepMs(base, 3, 700, chunks)).toBeCloseTo(step([100, 200, 400], [[32, 100]]), 12)
  expect(stepMs(base, 0, 0, chunks)).toBeCloseTo(step([], [[32, 100]]), 12)
})

test('one sequence: its prompt gives the first token, every further one takes a step', () => {
  const result = run([line(0, 100, [5])])
  const first = step([], [[0, 100]])
  const decodes = upTo(4).map(k => step([100 + k]))
  expect(result.makespanMs).toBeCloseTo(first + sumOf(decodes), 9)
  expect(result.ttftMsMean).toBeCloseTo(first, 9)
  expect(result.tpotMsMean).toBeCloseTo(sumOf(decodes) / 4, 9)
  expect(result).toMatchObject({
    turns: 1,
    generatedTokens: 5,
    prefilledTokens: 100,
    preemptions: 0,
    recomputedTokens: 0,
  })
  expect(result.idleShare).toBeCloseTo(0, 12)
  // 104 tokens are in the cache at the end, in 7 blocks.
  expect(result.kvPeakShare).toBeCloseTo((7 * 16) / 1600, 12)
})

test('time runs from the first arrival, and an idle engine is counted as idle', () => {
  const result = run([line(0, 100, [1], { arrivalMs: 5000 }), line(1, 100, [1], { arrivalMs: 6000 })])
  const each = step([], [[0, 100]])
  expect(result.makespanMs).toBeCloseTo(1000 + each, 9)
  expect(result.idleShare).toBeCloseTo((1000 - each) / (1000 + each), 9)
})

test('two sequences share each step, and the one that is left goes on alone', () => {
  const result = run([line(0, 100, [3]), line(1, 50, [5])])
  const steps = [
    step(
      [],
      [
        [0, 100],
        [0, 50],
      ],
    ),
    step([101, 51]),
    step([102, 52]),
    step([53]),
    step([54]),
  ]
  expect(result.makespanMs).toBeCloseTo(sumOf(steps), 9)
})

test('a prompt over the budget of a step is computed in chunks, beside the decodes that go first', () => {
  const model = { maxBatchTokens: 100 }
  const alone = [step([], [[0, 100]]), step([], [[100, 100]]), step([], [[200, 50]])]
  expect(run([line(0, 250, [1])], model).makespanMs).toBeCloseTo(sumOf(alone), 9)
  // The short one arrives first; its decodes leave 99 tokens of every step to the long prompt.
  const steps = [
    step(
      [],
      [
        [0, 20],
        [0, 80],
      ],
    ),
    step([21], [[80, 99]]),
    step([22], [[179, 71]]),
    step([23]),
  ]
  expect(run([line(0, 20, [4]), line(1, 250, [1])], model).makespanMs).toBeCloseTo(sumOf(steps), 9)
})

test('a turn finds what the one before left in whole blocks, and computes the rest', () => {
  const result = run([line(0, 100, [[10, 200, 30], 2])])
  // 109 tokens are cached after the first turn, in 6 whole blocks; the context is 140 then.
  const first = [step([], [[0, 100]]), ...upTo(9).map(k => step([100 + k]))]
  const second = [step([], [[96, 44]]), step([141])]
  expect(result.makespanMs).toBeCloseTo(sumOf(first) + 200 + sumOf(second), 9)
  expect(result).toMatchObject({ cachedTokens: 96, prefilledTokens: 144, recomputedTokens: 13, moves: 0 })
  expect(result.idleShare).toBeCloseTo(200 / result.makespanMs, 9)
})

test('a group’s prompt is computed once where the engine shares prefixes, but for the block of its last token', () => {
  const trace = [line(0, 40, [2]), line(1, 40, [2])]
  const shared = run(trace, { prefixSharing: true })
  expect(shared.makespanMs).toBeCloseTo(
    step(
      [],
      [
        [0, 40],
        [32, 8],
      ],
    ) + step([41, 41]),
    9,
  )
  // Two shared blocks, and one that each has for itself.
  expect(shared.kvPeakShare).toBeCloseTo((4 * 16) / 1600, 12)
  expect(run(trace).kvPeakShare).toBeCloseTo((6 * 16) / 1600, 12)
})

test('vllm: without a free block the newest sequence is preempted, goes first, and computes again what was evicted', () => {
  const result = run([line(0, 4, [9]), line(1, 4, [9])], { kvTokens: 16, blockTokens: 4 })
  const steps = [
    step(
      [],
      [
        [0, 4],
        [0, 4],
      ],
    ),
    ...[2, 3, 4, 5].map(s => step([s + 3, s + 3])),
    // The older one needs a third block: the newer loses its second, and waits until three are free.
    ...[6, 7, 8, 9].map(s => step([s + 3])),
    step([], [[4, 5]]),
    step([10]),
    step([11]),
    step([12]),
  ]
  expect(result.makespanMs).toBeCloseTo(sumOf(steps), 9)
  expect(result).toMatchObject({ preemptions: 1, recomputedTokens: 4, generatedTokens: 18, kvPeakShare: 1 })
})

test('vllm with priorities preempts the trajectory that began last, whichever turn came last', () => {
  // The first trajectory's second turn is the newest request, but not the newest trajectory.
  const trace = [line(0, 4, [[2, 0, 2], 8]), line(1, 4, [12])]
  const model = { kvTokens: 20, blockTokens: 4 }
  const ends = (priority: boolean): string[] => {
    const order: string[] = []
    run(trace, model, { priority, observe: e => e.kind === 'ended' && order.push(`${e.trajectory}#${e.turn}`) })
    return order
  }
  expect(ends(true)).toEqual(['g/0#0', 'g/0#1', 'g/1#0'])
  expect(ends(false)).toEqual(['g/0#0', 'g/1#0', 'g/0#1'])
})

test('sglang: prompts have steps of their own, and decodes wait for them', () => {
  const trace = [line(0, 4, [3]), line(1, 4, [3], { arrivalMs: step([], [[0, 4]]) + 0.1 })]
  const result = run(trace, { family: 'sglang' })
  const steps = [step([], [[0, 4]]), step([5]), step([], [[0, 4]]), step([6, 5]), step([6])]
  expect(result.makespanMs).toBeCloseTo(sumOf(steps), 9)
})

test('sglang: a request waits while what the running ones may write, times the ratio, leaves too little', () => {
  const trace = [line(0, 4, [9]), line(1, 4, [9])]
  const result = run(trace, { family: 'sglang', kvTokens: 16, blockTokens: 4 })
  const each = [step([], [[0, 4]]), ...upTo(8).map(k => step([4 + k]))]
  expect(result.makespanMs).toBeCloseTo(2 * sumOf(each), 9)
  expect(result.preemptions).toBe(0)
})

test('sglang decodes all that runs, whatever the budget of a step: the bound knows', () => {
  const trace = upTo(12).map(member => line(member, 4, [80]))
  for (const family of familyNames) {
    const model = { ...base, family, maxSequences: 12, maxBatchTokens: 4 }
    expect(run(trace, model).makespanMs).toBeGreaterThanOrEqual(lowerBoundMs(trace, model, 1).ms)
  }
})

test('sglang looks 4096 tokens ahead: a request is admitted in the same step, whether steps are taken as one or not', () => {
  const trace = upTo(14).map(member => line(member, 100, [1763 + 37 * member]))
  for (const boundTokens of [4000, 4200, 5000]) {
    const options = { boundTokens, statusMs: 0 }
    const model = {
      family: 'sglang',
      kvTokens: 24_000,
      blockTokens: 1,
      maxSequences: 64,
      maxBatchTokens: 8192,
    } as const
    const stepwise = run(trace, model, { ...options, stepwise: true })
    expect(run(trace, model, options).ttftMsMean).toBeCloseTo(stepwise.ttftMsMean, 6)
  }
})

test('what the check of a trace lets pass, the scheduler takes: a turn needs room for a token behind its context', () => {
  const small = { kvTokens: 160, blockTokens: 16 }
  for (const policy of names) {
    expect(run([line(0, 150, [[5, 1, 4], 1])], small, { policy }).turns).toBe(2)
    expect(run([line(0, 150, [[5, 1, 4], 2])], small, { policy }).kvPeakShare).toBe(1)
  }
  expect(() => run([line(0, 150, [[5, 1, 5], 1])], small)).toThrow(/needs 161 tokens of KV/)
  expect(() => run([line(0, 150, [[5, 1, 4], 3])], small)).toThrow(/needs 161 tokens of KV/)
})

test('sglang: the sequence that has written least is retracted, and finds its prompt again', () => {
  // 600 decode steps take the ratio down to 0.098: then more is admitted than will fit.
  const late = { arrivalMs: 3200 }
  const trace = [line(0, 32, [700]), ...[1, 2, 3].map(member => line(member, 32, [700], late))]
  const ended: string[] = []
  const model = { family: 'sglang', kvTokens: 1600, blockTokens: 1 } as const
  const observe: SimulationOptions['observe'] = event => event.kind === 'ended' && ended.push(event.trajectory)
  const result = run(trace, model, { observe })
  expect(result.preemptions).toBeGreaterThan(0)
  expect(ended[ended.length - 1]).toBe('g/3')
  expect(result.generatedTokens).toBe(2800)
  // Its prompt stayed in the prefix cache; what it had written did not.
  expect(result.recomputedTokens).toBeGreaterThan(0)
  expect(result.cachedTokens).toBeGreaterThanOrEqual(31)
})

test('a trace that the engine cannot hold, and options that are none, are refused with what differs', () => {
  expect(() => run([line(0, 1000, [700])])).toThrow(/'g\/0' needs 1699 tokens of KV, and engine small has 1600/)
  expect(() => run([line(0, 10, [7]), line(0, 10, [7])])).toThrow("trajectoryId 'g/0' occurs twice")
  expect(() => run([])).toThrow('the trace has no trajectory')
  expect(() => run([line(0, 10, [7])], {}, { engines: 0 })).toThrow('engines is 0')
  expect(() => run([line(0, 10, [7])], {}, { boundTokens: 16 })).toThrow(
    "'g/0' grows to 17 tokens, over the bound of 16",
  )
})

test('an option or a time under which the simulation would never end is refused, with what is wrong', () => {
  const one = [line(0, 10, [7])]
  const weights = (everyMs: number, pauseMs: number) => () => run(one, {}, { weights: { everyMs, pauseMs } })
  expect(weights(100, 200)).toThrow('come every 100 ms and pause the engines for 200 ms: no engine would ever continue')
  expect(weights(100, 100)).toThrow('expected a pause shorter than the period')
  expect(weights(100, 99)).not.toThrow()
  expect(weights(1e-9, 0)).toThrow('weights come every 1e-9 ms')
  expect(() => run(one, {}, { statusMs: 1e-9 })).toThrow('statusMs is 1e-9, expected ms from 1, or 0 for never')
  const inTheSun = [line(0, 10, [7]), line(1, 10, [7], { arrivalMs: 1.7e18 })]
  expect(() => run(inTheSun)).toThrow("'g/1' waits 1700000000000000000 ms")
  expect(() => run([line(0, 10, [[7, 1e300, 1], 7])])).toThrow("give all times in ms since the trace's start")
})

test.each(names)('%s: however long nothing runs, the figures are those of a short gap, and as soon there', policy => {
  const burst = (arrivalMs: number, first: number) =>
    [0, 1, 2].map(i => line(first + i, 100, [[20, 300, 10], 20], { arrivalMs }))
  const options = { policy, engines: 2, weights: { everyMs: 50, pauseMs: 20 } }
  const short = run([...burst(0, 0), ...burst(100_000, 3)], {}, options)
  const gapMs = 1_700_000_000_000
  const long = run([...burst(0, 0), ...burst(gapMs, 3)], {}, options)
  expect(long.makespanMs - gapMs).toBeCloseTo(short.makespanMs - 100_000, 1)
  for (const count of ['turns', 'steps', 'prefilledTokens', 'cachedTokens', 'recomputedTokens'] as const) {
    expect(long[count]).toBe(short[count])
  }
  expect(long.ttftMsMean).toBeCloseTo(short.ttftMsMean, 1)
  // A tool that takes as long, and arrivals that are dates.
  expect(run([line(0, 100, [[20, gapMs, 10], 20])], {}, options).turns).toBe(2)
  const dated = run([...burst(gapMs, 0), ...burst(gapMs + 100_000, 3)], {}, options)
  expect(dated).toEqual(short)
})

test('new weights pause every engine, and what was kept between turns is computed again', () => {
  const trace = [line(0, 100, [[10, 200, 30], 2])]
  const result = run(trace, {}, { weights: { everyMs: 150, pauseMs: 40 } })
  expect(result).toMatchObject({ cachedTokens: 0, prefilledTokens: 240, recomputedTokens: 109 })
})

interface Load {
  readonly model: EngineModel
  readonly engines: number
  readonly trace: readonly TracedTrajectory[]
  readonly policy: PolicyName
  readonly priority: boolean
}

const anyLoad: fc.Arbitrary<Load> = fc
  .record({
    model: fc
      .record({
        family: fc.constantFrom(...familyNames),
        blockTokens: fc.constantFrom(1, 4, 16),
        maxSequences: fc.integer({ min: 1, max: 12 }),
        maxBatchTokens: fc.oneof(fc.integer({ min: 1, max: 8 }), fc.integer({ min: 8, max: 200 })),
        prefixSharing: fc.boolean(),
      })
      .map(rest => ({ ...base, ...rest })),
    tightness: fc.double({ min: 1, max: 4, noNaN: true }),
    engines: fc.integer({ min: 1, max: 3 }),
    policy: fc.constantFrom(...names),
    priority: fc.boolean(),
    trace: fc.array(
      fc.record({
        group: fc.integer({ min: 0, max: 2 }),
        arrivalMs: fc.constantFrom(0, 0, 10, 77.5),
        turns: fc.array(
          fc.record({
            newTokens: fc.integer({ min: 1, max: 60 }),
            toolMs: fc.constantFrom(0, 5, 300),
            toolTokens: fc.integer({ min: 0, max: 20 }),
          }),
          { minLength: 1, maxLength: 4 },
        ),
      }),
      { minLength: 1, maxLength: 25 },
    ),
  })
  .map(({ model, tightness, trace, ...rest }) => {
    const lines = trace.map(({ group, arrivalMs, turns }, i) => ({
      trajectoryId: `g${group}/${i}`,
      groupId: `g${group}`,
      arrivalMs,
      promptTokens: [5, 33, 64][group]!,
      turns,
    }))
    // From what just fits.
    const longest = Math.max(...lines.map(finalTokens))
    const kvTokens = Math.ceil((longest * tightness) / model.blockTokens) * model.blockTokens
    return { ...rest, model: { ...model, kvTokens }, trace: lines }
  })

test('whatever the load: every turn completes, tokens are conserved, KV is never over capacity, no bound is beaten', () => {
  fc.assert(
    fc.property(anyLoad, ({ model, engines, trace, policy, priority }) => {
      const result = simulate(trace, { model, engines, policy, priority })
      expect(result.turns).toBe(trace.reduce((sum, one) => sum + one.turns.length, 0))
      expect(result.generatedTokens).toBe(trace.reduce((sum, one) => sum + sampledTokens(one), 0))
      expect(result.kvPeakShare).toBeLessThanOrEqual(1)
      expect(result.idleShare).toBeGreaterThanOrEqual(-1e-9)
      expect(result.makespanMs).toBeGreaterThanOrEqual(lowerBoundMs(trace, model, engines).ms - 1e-6)
      const contexts = trace.reduce((sum, { promptTokens, turns }) => {
        let context = promptTokens
        for (const { newTokens, toolTokens } of turns) {
          sum += context
          context += newTokens + toolTokens
        }
        return sum
      }, 0)
      if (result.preemptions === 0) expect(result.prefilledTokens + result.cachedTokens).toBe(contexts)
      else expect(result.prefilledTokens + result.cachedTokens).toBeGreaterThan(contexts)
      expect(simulate(trace, { model, engines, policy, priority })).toEqual(result)
    }),
    { numRuns: 300 },
  )
})

/** Policies that look at no time: what they decide does not hang on the last bit of a sum of times. */
const byCount = ['static', 'static-async', 'least-requests'] as const

test('taking steps that only decode as one changes nothing', () => {
  fc.assert(
    fc.property(anyLoad, fc.constantFrom(...byCount), ({ model, trace, priority }, policy) => {
      // One engine: of two that do the same, the last bit of a sum would say which ends first.
      const options = { model, engines: 1, policy, priority }
      const fast = simulate(trace, options)
      const slow = simulate(trace, { ...options, stepwise: true })
      for (const [key, value] of Object.entries(slow)) {
        // A mean over time that is taken from what stands at the ends of the steps taken as one.
        if (typeof value !== 'number' || key === 'kvMeanShare') continue
        const close = Math.abs(fast[key as 'turns'] - value) <= 1e-6 * Math.max(1, Math.abs(value))
        expect([key, close ? value : fast[key as 'turns']]).toEqual([key, value])
      }
    }),
    { numRuns: 200 },
  )
})

test('a workload follows from its shape and seed, and keeps to the cap', () => {
  const shape = { ...baseShape, groups: 6 }
  const trace = workload(shape, 7)
  expect(workload(shape, 7)).toEqual(trace)
  expect(workload(shape, 8)).not.toEqual(trace)
  expect(workload({ ...shape, groups: 4 }, 7)).toEqual(trace.slice(0, 4 * 32))
  for (const one of trace) {
    expect(finalTokens(one)).toBeLessThanOrEqual(shape.capTokens)
    expect(one.turns.length).toBeLessThanOrEqual(10)
    expect(Math.min(...one.turns.map(turn => turn.newTokens))).toBeGreaterThan(0)
  }
  const mean = workload({ ...shape, groups: 60 }, 1).reduce((sum, one) => sum + sampledTokens(one), 0) / (60 * 32)
  expect(mean).toBeGreaterThan(3000)
  expect(mean).toBeLessThan(4500)
})
