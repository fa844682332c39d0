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
} from '../../../kernels'
import { pcg32 } from '../../../kernels/random'
import { stepMs } from '../../../kernels/simulator/engineModel'

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
  const sentMs = new Map<string, number>()
  const observe = (event: SchedulerEvent) => {
    if (event.kind === 'decided') for (const { trajectory } of event.assignments) sentMs.set(trajectory, event.atMs)
    if (event.kind !== 'ended' || event.preemptions > 0) return
    const { atMs, firstTokenMs, cachedTokens } = event
    const startedMs = sentMs.get(event.trajectory)!
    const { contextTokens, newTokens } = event.request
    turns.push({ engine: 'e', startedMs, firstTokenMs, endedMs: atMs, contextTokens, cachedTokens, newTokens })
  }
  simulate(trace, { model: of, engines: 1, policy: 'static-async', observe })
  return turns
}

test('an engine whose steps are linear in what they compute is found from its turns', () => {
  const { stepMs: found, decodeError, firstTokenError } = calibrate(measure(workload(shape, 1)), model.maxBatchTokens)
  expect(decodeError).toBeLessThan(0.01)
  expect(firstTokenError).toBeLessThan(0.15)
  for (const decodes of [1, 8, 32]) {
    const lasts = stepMs({ ...model, stepMs: found }, decodes, decodes * 900, [])
    expect(Math.abs(lasts / stepMs(model, decodes, decodes * 900, []) - 1)).toBeLessThan(0.05)
  }
})

test('a step that is slower for prompts beside decodes is found, and a patch of turns that something else slowed down is not', () => {
  const mixing = { ...model, stepMs: { ...model.stepMs, mixedPerSequence: 0.2 } }
  const turns = measure(workload(shape, 1), mixing)
  const last = Math.max(...turns.map(turn => turn.endedMs))
  const slowed = turns.map(turn =>
    turn.firstTokenMs < last * 0.4 || turn.firstTokenMs > last * 0.5
      ? turn
      : { ...turn, endedMs: turn.firstTokenMs + 1.6 * (turn.endedMs - turn.firstTokenMs) },
  )
  for (const batch of [turns, slowed]) {
    const found = calibrate(batch, model.maxBatchTokens).stepMs
    const chunk = [{ cachedTokens: 400, tokens: 50 }]
    for (const chunks of [[], chunk]) {
      const lasts = stepMs({ ...model, stepMs: found }, 32, 32 * 900, chunks)
      expect(Math.abs(lasts / stepMs(mixing, 32, 32 * 900, chunks) - 1)).toBeLessThan(0.1)
    }
  }
})

/** Weights that are read once a step whatever it computes: a floor, and a slope beyond some 100 tokens. */
const curved = { ...model, stepMs: { ...model.stepMs, overhead: 1, denseFloor: 8, densePerToken: 0.08 } }
const curvedTurns = measure(workload(shape, 1), curved)
const others = [
  ['more at once', { ...shape, groups: 8, arrivalMs: 0 }],
  ['fewer at once', { ...shape, groups: 1 }],
  ['shorter ones', { ...shape, meanTokens: 200 }],
] as const

describe('calibrated on one load', () => {
  let fitted: EngineModel
  beforeAll(() => {
    fitted = { ...curved, stepMs: calibrate(curvedTurns, curved.maxBatchTokens).stepMs }
  })

  test.each(others)('the simulator predicts another: %s', (_title, other) => {
    const trace = workload(other, 2)
    const on = (of: EngineModel) => simulate(trace, { model: of, engines: 1, policy: 'static-async' })
    const [found, measured] = [on(fitted), on(curved)]
    expect(Math.abs(found.makespanMs / measured.makespanMs - 1)).toBeLessThan(0.03)
    expect(Math.abs(found.ttftMsMean / measured.ttftMsMean - 1)).toBeLessThan(0.1)
  })
})

test('a prediction is not drawn to the shortest times where turns of one length take between half and twice as long', () => {
  const random = pcg32(5)
  const turns = curvedTurns.map(turn => {
    const lasted = (turn.endedMs - turn.firstTokenMs) * 2 ** ((random.below(2001) - 1000) / 1000)
    return { ...turn, endedMs: turn.firstTokenMs + lasted }
  })
  const sum = (of: readonly MeasuredTurn[]) => of.reduce((ms, turn) => ms + turn.endedMs - turn.firstTokenMs, 0)
  const { stepMs: found, decodeError } = calibrate(turns, curved.maxBatchTokens)
  const again = measure(workload(shape, 1), { ...curved, stepMs: found })
  expect(decodeError).toBeGreaterThan(0.2)
  expect(Math.abs(sum(again) / sum(turns) - 1)).toBeLessThan(0.05)
})

test('engines alike are fitted together, each with what it had under way itself', () => {
  const other = measure(workload(shape, 2), curved)
  const both = [...curvedTurns, ...other.map(turn => ({ ...turn, engine: 'f' }))]
  const { stepMs: found, turns, decodeError } = calibrate(both, curved.maxBatchTokens)
  expect(turns).toBe(both.length)
  expect(decodeError).toBeLessThan(0.02)
  expect(Math.abs(found.denseFloor + found.overhead - 9)).toBeLessThan(1)
})

test('turns whose whole context was in the cache are replayed to their end', () => {
  const turns = measure(workload(shape, 1)).map(turn => ({ ...turn, cachedTokens: turn.contextTokens }))
  expect(calibrate(turns, model.maxBatchTokens).turns).toBe(turns.length)
})

test('of a long run the beginning is fitted, and what is counted is that', () => {
  const turns = Array.from({ length: 4100 }, (_, k) => {
    const startedMs = 100 * k
    const times = { startedMs, firstTokenMs: startedMs + 10, endedMs: startedMs + 20 }
    return { engine: 'e', ...times, contextTokens: 10, cachedTokens: 0, newTokens: 2 }
  })
  expect(calibrate(turns).turns).toBe(4000)
})

test('too few turns are refused with how many are needed', () => {
  const turns = measure(workload(shape, 1)).slice(0, leastTurns - 1)
  expect(() => calibrate(turns)).toThrow(`expected at least ${leastTurns}`)
})
