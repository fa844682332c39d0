/** Timeouts follow from the estimate where the recipe leaves them out, and are held against it where it names them. */
import { engines } from '../../../actors/inference/engines'
import { type RecipeConfig, recipeSchema } from '../../../config'
import { deadlineFaults } from '../../../config/estimate/deadlineFaults'
import { durationsIfKnown, explainTimeouts, timeoutNames, timeoutsOf } from '../../../config/estimate/timeouts'
import { longestTimerMs } from '../../../config/sections/timeouts'
import { refuseUnfit } from '../../../config/unfit'
import { recipes } from '../../../recipes'
import { loadRecipe } from '../../../recipes/load/loadRecipe'
import { createLog } from '../../../runtime/log'

const of = (name: string, ...set: string[]): RecipeConfig => loadRecipe(name, set).config.value
const floors = {
  ...{ trainerStartMs: 180_000, stepMs: 3_600_000, sftMs: 21_600_000, saveMs: 600_000, loadMs: 600_000 },
  ...{
    rankWaitMs: 600_000,
    engineStartMs: 180_000,
    weightUpdateMs: 600_000,
    weightsBehindMs: 60_000,
    fetchWeightsMs: 3_600_000,
  },
  firstTokenMs: 600_000,
}

test('a small recipe, and one whose model is not there, keep the timeouts of a small model', () => {
  expect(timeoutsOf(of('quickstart'))).toEqual(floors)
  const absent = { name: 'r', model: { from: 'directory', path: '/nowhere' } }
  expect(timeoutsOf(recipeSchema.parse(absent))).toEqual(floors)
})

test('each timeout is four times its estimate, at least the floor, and at most what a timer can wait', () => {
  const config = of('rstar2-8gpu')
  const { timeouts: durations } = durationsIfKnown(config)!
  const resolved = timeoutsOf(config)
  for (const name of timeoutNames)
    expect([name, resolved[name]]).toEqual([name, Math.max(floors[name], 4 * Math.ceil(durations[name].value) * 1000)])
  // Over 2,000 s of training and 29,096 s of the cold start: an hour and six hours would not do.
  expect(resolved.stepMs).toBeGreaterThan(8_000_000)
  expect(resolved.sftMs).toBeGreaterThan(100_000_000)
  expect(timeoutsOf(of('rstar2-8gpu', 'hardware.tflops=0.5')).sftMs).toBe(longestTimerMs)
})

test('ranks on other hosts have half an hour to come', () => {
  const set = ['train.nodes=2', 'train.rendezvous=host:29400', 'train.ranks=8']
  expect(timeoutsOf(of('rstar2-8gpu', ...set)).trainerStartMs).toBe(1_800_000)
})

test('a timeout that the recipe names is taken as it is; the others say where they come from', () => {
  const config = of('rstar2-8gpu', 'timeouts.stepMs=9000000')
  const explained = explainTimeouts(config, durationsIfKnown(config))
  expect(explained.stepMs).toEqual({ ms: 9_000_000, origin: undefined })
  expect(explained.saveMs.origin).toMatch(/^4 × estimate \(saving of a checkpoint: 414 s\)$/)
  expect(explained.weightUpdateMs.origin).toMatch(/^floor, above 4 × estimate/)
})

test('every recipe of the house gives its rollouts, turns and steps more time than the estimate', () => {
  for (const name of recipes.keys()) {
    const durations = durationsIfKnown(of(name))
    if (durations !== undefined) expect([name, deadlineFaults(of(name), durations)]).toEqual([name, []])
  }
})

test('a deadline that is shorter than the estimate is refused at the start of a run, with the sum', () => {
  const refusal = (...set: string[]) => {
    try {
      refuseUnfit(of('rstar2-8gpu', ...set))
    } catch (thrown) {
      return thrown as { code: string; message: string }
    }
    return undefined
  }
  expect(refusal()).toBeUndefined()
  expect(refusal('rollout.deadlineMs=300000')).toMatchObject({
    code: 'config.deadline_too_short',
    message: expect.stringMatching(
      /rollout\.deadlineMs is 300 s, but the longest rollout takes 602 s .*12,288 tokens × 0\.0441 s .*15 turns × 1 × 4000 ms/,
    ),
  })
  expect(refusal('rollout.turnTimeoutMs=600000')?.message).toMatch(/longest turn takes 1322 s .*30,000 tokens/)
  expect(refusal('timeouts.stepMs=2000000')?.message).toMatch(
    /timeouts\.stepMs is 2000 s, but the optimizer step takes 2\d{3} s .*8 × 989 TFLOPS × 0\.35/,
  )
  // An evaluation has no deadline for its rollouts.
  expect(refusal('rollout.deadlineMs=300000', 'train.steps=0')).toBeUndefined()
})

test('a recipe that names no hardware is not refused: its estimate is for other hardware than it runs on', () => {
  const { hardware: _, ...rest } = of('rstar2-8gpu', 'timeouts.stepMs=1000')
  expect(() => refuseUnfit(rest as RecipeConfig)).not.toThrow()
})

test('a local engine has the time that the recipe gives its start', async () => {
  const config = recipeSchema.parse({
    name: 'r',
    ...{ model: { from: 'directory', path: '/nowhere' }, timeouts: { engineStartMs: 1 } },
  })
  const { engines: planned } = engines(
    { config, log: createLog('test', { level: 'silent' }), learns: false },
    '/nowhere',
  )
  await expect(planned[0]!.start()).rejects.toMatchObject({
    code: 'process.start_timeout',
    message: expect.stringContaining('within 1 ms'),
  })
})
