/** Calibration: what turns alone tell of an engine's steps, and that a simulation with it predicts other loads. */
import {
  baseShape,
  calibrate,
  type EngineModel,
  leastTurns,
  type MeasuredTurn,
  type SchedulerEvent,
  simulate,
  type TracedTrajectory,
  workload,
} from '../../kernels'

const model: EngineModel = {
  name: 'measured',
  family: 'vllm',
  kvTokens: 60_000,
  blockTokens: 16,
  maxSequences: 64,
  maxBatchTokens: 4096,
  prefixSharing: true,
  stepMs: {
    overhead: 6,
    denseFloor: 0,
    densePerToken: 0,
    decodeBase: 0,
    decodePerSequence: 0.09,
    decodePerKvToken: 2e-4,
    prefillBase: 0,
    prefillPerToken: 0.05,
    prefillPerPair: 4e-6,
  },
}
const shape = { ...baseShape, groups: 6, groupSize: 8, meanTokens: 600, capTokens: 2000, arrivalMs: 5000 }

function measure(trace: readonly TracedTrajectory[], of: EngineModel = model): MeasuredTurn[] {
  const turns: MeasuredTurn[] = []
  const observe = (event: SchedulerEvent) => {
    if (event.kind !== 'ended' || event.preemptions > 0) return
    const { atMs, startedMs, firstTokenMs, cachedTokens } = event
    const { contextTokens, newTokens } = event.request
    turns.push({ engine: 'e', startedMs, firstTokenMs, endedMs: atMs, contextTokens, cachedTokens, newTokens })
  }
  simulate(trace, { model: of, engines: 1, policy: 'static-async', observe })
  return turns
}

test('an engine whose steps are linear in what they compute is found from its turns', () => {
  const { stepMs, decodeError, firstTokenError } = calibrate(measure(workload(shape, 1)))
  expect(decodeError).toBeLessThan(0.03)
  expect(firstTokenError).toBeLessThan(0.25)
  expect(stepMs.overhead).toBeGreaterThan(5)
  expect(stepMs.overhead).toBeLessThan(7)
  expect(stepMs.decodePerSequence + stepMs.decodePerKvToken * 900).toBeCloseTo(0.09 + 2e-4 * 900, 1)
})

test.each([
  ['more at once', { ...shape, groups: 8, arrivalMs: 0 }],
  ['shorter ones', { ...shape, meanTokens: 200 }],
])('calibrated on one load, the simulator predicts the makespan of another within 10 %%: %s', (_title, other) => {
  // Floors make steps other than linear: what is fitted is an approximation of this engine.
  const curved = { ...model, stepMs: { ...model.stepMs, overhead: 1, denseFloor: 6, densePerToken: 0.04 } }
  const fitted = { ...curved, stepMs: calibrate(measure(workload(shape, 1), curved)).stepMs }
  const trace = workload(other, 2)
  const makespan = (of: EngineModel) => simulate(trace, { model: of, engines: 1, policy: 'static-async' }).makespanMs
  expect(Math.abs(makespan(fitted) / makespan(curved) - 1)).toBeLessThan(0.1)
})

test('too few turns are refused with how many are needed', () => {
  const turns = measure(workload(shape, 1)).slice(0, leastTurns - 1)
  expect(() => calibrate(turns)).toThrow(`${leastTurns} are the least`)
})
