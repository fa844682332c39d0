/** The estimate of generation is what the simulator's engine takes for the same load, whatever bounds the sequences. */
import { plannedEngine } from '../../../config/estimate/engineModel'
import { generationOf } from '../../../config/estimate/generation'
import { sizesOf } from '../../../config/estimate/sizes'
import { type EngineModel, simulate } from '../../../kernels'
import { loadRecipe } from '../../../recipes/load/loadRecipe'

const engineOf = (...set: string[]): EngineModel => {
  const { value } = loadRecipe('rstar2-8gpu', set).config
  return plannedEngine(
    sizesOf(value, value.model.from === 'directory' ? value.model.architecture! : {}, value.hardware!),
  )
}

test.each([
  ['rollouts of an engine', 24, 1024, 1.05],
  ['engine.maxSequences', 256, 1024, 1.05],
  // The simulated engine admits more while its sequences are short, which the estimate does not count on.
  ['KV cache', 96, 20_480, 1.15],
] as const)('bound by %s, the estimate agrees with the simulated makespan', (bound, rollouts, meanTokens, most) => {
  const model = engineOf()
  const estimated = generationOf(model, 1, { rollouts, meanTokens })
  expect(estimated.bound).toBe(bound)
  const trace = Array.from({ length: rollouts }, (_, at) => ({
    ...{ trajectoryId: `t${at}`, groupId: `g${at}`, arrivalMs: 0, promptTokens: 16 },
    turns: [{ newTokens: meanTokens, toolMs: 0, toolTokens: 0 }],
  }))
  const { makespanMs } = simulate(trace, { model, engines: 1, policy: 'static-async' })
  const waves = Math.ceil(rollouts / estimated.running)
  // A last wave that is not full takes less a step but as many steps.
  const full = (waves * estimated.running) / rollouts
  expect((1000 * estimated.figure.value * full) / makespanMs).toBeGreaterThan(0.95)
  expect((1000 * estimated.figure.value) / makespanMs).toBeLessThan(most)
})

test('no more sequences run than engine.maxSequences, and a token reads half of the KV of a whole rollout', () => {
  const few = generationOf(engineOf('engine.maxSequences=8'), 4, { rollouts: 16_384, meanTokens: 6144 })
  expect([few.running, few.bound]).toEqual([8, 'engine.maxSequences'])
  const { stepMs: c } = engineOf()
  const seconds = (4096 / 8) * 6144 * ((c.overhead + Math.hypot(c.denseFloor, c.densePerToken * 8) + c.decodePerKvToken * 8 * 3072) / 1000) // biome-ignore format: one sum
  expect(few.figure.value).toBeCloseTo(seconds, 6)
  expect(few.secondsPerToken - seconds / (512 * 6144)).toBeCloseTo((c.decodePerKvToken * 8 * 3072) / 1000, 9)
})
