/** `train.attention` and `train.compile`: what contradicts them is refused when the recipe is read. */
import { recipeSchema } from '../../config'

const parse = (train: object) => recipeSchema.safeParse({ name: 'r', model: { from: 'directory', path: '/m' }, train })

test('a kernel that cannot train on the device or in the dtype is refused, and so is a compilation that it prevents', () => {
  const refusals: [object, string, string][] = [
    [{ attention: 'varlen', device: 'cpu' }, 'attention', 'varlen trains only on CUDA, and train.device is cpu'],
    [{ attention: 'flex', device: 'cpu' }, 'attention', 'flex trains only on CUDA'],
    [{ attention: 'varlen', dtype: 'float32' }, 'attention', 'computes in bfloat16, and train.dtype is float32'],
    [{ compile: 'layer', ranks: 2 }, 'compile', "'layer' needs one rank, and train.ranks is 2"],
    [{ compile: 'layer', attention: 'flex' }, 'compile', 'flex attention is compiled on its own'],
  ]
  for (const [train, field, message] of refusals) {
    const { error } = parse(train)
    expect([train, error?.issues]).toMatchObject([
      train,
      [{ path: ['train', field], message: expect.stringContaining(message) }],
    ])
  }
  for (const train of [{ compile: true }, { attention: 'flash' }]) expect(parse(train).success).toBe(false)
})

test('without the fields, a trainer chooses the kernel and compiles nothing', () => {
  expect(parse({}).data?.train).toMatchObject({ attention: 'auto', compile: false })
  for (const train of [
    { attention: 'varlen', dtype: 'bfloat16', device: 'cuda' },
    { attention: 'flex' },
    { compile: 'layer' },
  ])
    expect(parse(train).success).toBe(true)
})
