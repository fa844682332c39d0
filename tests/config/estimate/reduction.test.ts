/** `train.gradientReduction: auto` is what the recipe's hardware has room for, and the trainer gets the value that it stands for. */
import { trainerOptionsOf } from '../../../backends/trainer/recipeOptions'
import { resolvedReduction } from '../../../config/estimate/reduction'
import { loadRecipe } from '../../../recipes/load/loadRecipe'

const of = (name: string, ...set: string[]) => loadRecipe(name, set).config.value

test('auto sums gradients once an update where a whole gradient fits, and says the sum', () => {
  expect(of('rstar2').train.gradientReduction).toBe('auto')
  const { value, origin } = resolvedReduction(of('rstar2'))
  expect([value, origin]).toEqual([
    'update',
    expect.stringMatching(
      /^auto: trainer 7\d\.\d \+ sleeping engine 2\.0 = 7\d\.\d GiB with a whole gradient .* 0\.9 × 192 fit$/,
    ),
  ])
  expect(trainerOptionsOf(of('rstar2')).gradientReduction).toBe('update')
  // 55 GiB of gradients do not fit beside the rest on 80 GB.
  const small = resolvedReduction(of('rstar2-8gpu'))
  expect([small.value, small.origin]).toEqual(['micro-batch', expect.stringMatching(/= 9\d\.\d GiB .* 0\.9 × 80 fit$/)])
  expect(resolvedReduction(of('rstar2-8gpu', 'train.lora={}')).value).toBe('update')
})

test('auto is micro-batch where nothing can be compared; a value that the recipe names is taken as it is', () => {
  expect(resolvedReduction(of('gsm8k-qwen2.5-0.5b')).origin).toBe('auto: one rank has nothing to sum')
  expect(resolvedReduction(of('quickstart', 'train.ranks=2')).origin).toMatch(/names no hardware/)
  const named = resolvedReduction(of('rstar2-8gpu', 'train.gradientReduction=update'))
  expect(named).toEqual({ value: 'update', origin: undefined })
})

test('hardware.plan=null takes the plan of a recipe away', () => {
  expect(of('rstar2-8gpu').hardware!.plan).toBeDefined()
  expect(of('rstar2-8gpu', 'hardware.plan=null').hardware!.plan).toBeUndefined()
})
