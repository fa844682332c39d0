/** `auto` counts as what the trainer takes on the device: the memory, the disk and the deadlines of an estimate agree. */
import { type RecipeInput, recipeSchema } from '../../../config'
import { diskNeed } from '../../../config/estimate/disk'
import { estimate } from '../../../config/estimate/estimate'
import { bytesOf, precisionOf } from '../../../config/estimate/precision'
import { hardwareSection } from '../../../config/sections/hardware'

const architecture = { model_type: 'llama', hidden_size: 64, num_hidden_layers: 2, vocab_size: 512 }
const recipe = (train: RecipeInput['train']) =>
  recipeSchema.parse({ name: 'r', model: { from: 'directory', path: '/m', architecture }, train })
const memory = (train: RecipeInput['train']) =>
  estimate(recipe(train), architecture, hardwareSection.parse({})).memory.map(({ what, value }) => [what, value])

test('auto is bfloat16 on a GPU and float32 on the CPU', () => {
  const read = (device: string) => [precisionOf('auto', device), bytesOf('auto', device)]
  expect([read('auto'), read('cuda:1'), read('cpu')]).toEqual([
    ['bfloat16', 2],
    ['bfloat16', 2],
    ['float32', 4],
  ])
  expect(precisionOf('float32', 'cuda')).toBe('float32')
})

test('a recipe that leaves dtype open is estimated as one that names the dtype of its device', () => {
  expect(memory({})).toEqual(memory({ dtype: 'bfloat16' }))
  expect(memory({})).not.toEqual(memory({ dtype: 'float32' }))
  expect(memory({ device: 'cpu' })).toEqual(memory({ device: 'cpu', dtype: 'float32' }))
})

test('a checkpoint takes the published weights in their precision, and the same on disk as in the time to save it', () => {
  const numbers = { parameters: 1e9, trainable: 1e9 }
  const of = (train: RecipeInput['train']) => diskNeed(numbers, recipe({ steps: 1, keepVersions: 1, ...train }).train)
  expect(of({ device: 'cpu' }).bytes - of({ device: 'cuda' }).bytes).toBeCloseTo(2 * (2 * 1e9) + 2 * 1e9, -3)
})
