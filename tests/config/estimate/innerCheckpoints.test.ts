/** Checkpoints in the middle of a step follow from the estimate where the recipe leaves them out. */
import { type RecipeConfig, recipeSchema } from '../../../config'
import { diskNeed } from '../../../config/estimate/disk'
import { explainInnerCheckpoints, innerCheckpointEveryOf } from '../../../config/estimate/innerCheckpoints'
import { durationsIfKnown } from '../../../config/estimate/timeouts'
import { loadRecipe } from '../../../recipes/load/loadRecipe'

const of = (name: string, ...set: string[]): RecipeConfig => loadRecipe(name, set).config.value

test('a step of several updates that takes over half an hour has checkpoints about every half hour; others have none', () => {
  // 2,147 s of training.
  const config = of('rstar2-8gpu', 'train.miniBatches=16')
  const seconds = durationsIfKnown(config)!.timeouts.stepMs.value
  expect(seconds).toBeGreaterThan(1800)
  const { every, origin } = explainInnerCheckpoints(config, durationsIfKnown(config))
  expect(every).toBe(Math.round((16 * 1800) / seconds))
  expect(origin).toBe(`about every 1800 s (estimate of a step: ${seconds.toFixed(0)} s)`)
  expect(innerCheckpointEveryOf(of('rstar2-8gpu', 'train.miniBatches=2'))).toBe(1)
  expect(innerCheckpointEveryOf(of('rstar2-8gpu'))).toBe(0)
  expect(innerCheckpointEveryOf(of('quickstart', 'train.miniBatches=4'))).toBe(0)
  expect(innerCheckpointEveryOf(of('rstar2-8gpu', 'train.miniBatches=4', 'train.innerCheckpointEvery=0'))).toBe(0)
  expect(
    explainInnerCheckpoints(of('quickstart', 'train.innerSteps=3', 'train.innerCheckpointEvery=2'), undefined),
  ).toEqual({
    every: 2,
    origin: undefined,
  })
})

test('a number that no step reaches is refused', () => {
  const parse = (train: object) =>
    recipeSchema.safeParse({ name: 'r', model: { from: 'directory', path: '/m' }, train })
  expect(parse({ innerSteps: 2, miniBatches: 2, innerCheckpointEvery: 3 }).success).toBe(true)
  for (const train of [{ innerCheckpointEvery: 1 }, { miniBatches: 4, innerCheckpointEvery: 4 }])
    expect(parse(train).error?.issues).toMatchObject([
      {
        path: ['train', 'innerCheckpointEvery'],
        message: expect.stringContaining("no checkpoint is written after a step's last update"),
      },
    ])
})

test('the disk that a run needs counts two of them', () => {
  const { train } = of('rstar2-8gpu', 'train.miniBatches=4')
  const need = (innerCheckpointEvery: number) =>
    diskNeed({ parameters: 10, trainable: 10 }, { ...train, innerCheckpointEvery }).bytes
  expect(need(2) - need(0)).toBeCloseTo(2 * 12 * 10, 6)
})
