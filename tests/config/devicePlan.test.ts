/** The device plan: who gets which GPU, and the sum that a refusal shows. */
import { recipeSchema } from '../../config'
import { type DevicePlan, deviceNeeds, devicePlan } from '../../config/devicePlan'
import { resolveConfig } from '../../runtime/settings/resolveConfig'

const planned = (gpus: number, ...overrides: string[]): DevicePlan => {
  const recipe = { name: 'r', model: { from: 'directory', path: '/m' } }
  const { value } = resolveConfig(recipeSchema, { what: 'recipe r', recipe, overrides })
  return devicePlan(value, { ...deviceNeeds(value), gpus })
}

test('engines and trainer get GPUs of their own where the host has enough, also without a plan', () => {
  const own = { kind: 'split', engines: [[0], [1]], trainer: [2, 3] }
  expect(planned(4, 'engine.count=2', 'train.ranks=2')).toEqual(own)
  expect(planned(8, 'engine.count=2', 'train.ranks=2', 'hardware.plan.kind=split')).toEqual(own)
})

test('of ranks on several hosts, a host needs GPUs for its own share', () => {
  const plan = planned(4, 'engine.count=2', 'train.ranks=4', 'train.nodes=2', 'train.rendezvous=learner:29400')
  expect(plan).toEqual({ kind: 'split', engines: [[0], [1]], trainer: [2, 3] })
})

test('without a plan and without enough GPUs, engines are spread over all GPUs beside the trainer', () => {
  expect(planned(2, 'engine.count=3')).toEqual({ kind: 'shared', engines: [[0], [1], [0]], trainer: [0] })
})

test('a split names the GPUs of both sides', () => {
  const split = 'hardware.plan={kind: split, engines: [3, 1], trainer: [0]}'
  expect(planned(4, 'engine.count=2', split)).toEqual({ kind: 'split', engines: [[3], [1]], trainer: [0] })
})

const servers = ['engine.kind=vllm', 'engine.launch={}']
test('colocated engines and ranks begin at the same GPU', () => {
  const plan = planned(2, ...servers, 'engine.count=2', 'train.ranks=2', 'hardware.plan.kind=colocated')
  expect(plan).toEqual({ kind: 'colocated', engines: [[0], [1]], trainer: [0, 1] })
})

test('a local engine, which cannot free its memory on a GPU, is not colocated there', () => {
  expect(() => planned(2, 'hardware.plan.kind=colocated')).toThrow(/a local engine cannot free its GPU memory/)
  expect(planned(0, 'hardware.plan.kind=colocated').kind).toBe('colocated')
})

test('on a host without GPUs, and for a device that the recipe names, nobody gets a GPU', () => {
  expect(planned(0, 'engine.count=2', 'hardware.plan.kind=split')).toMatchObject({ engines: [[], []], trainer: [] })
  expect(planned(4, 'engine.device=cpu')).toMatchObject({ engines: [[]], trainer: [0] })
  expect(planned(4, 'engine.device=cuda:3')).toMatchObject({ engines: [[]], trainer: [0] })
})

test.each([
  [
    4,
    ['engine.count=2', 'train.ranks=4', 'hardware.plan.kind=split'],
    '2 engines × 1 GPUs + 4 ranks = 6 GPUs, but this host has 4',
  ],
  [4, ['train.ranks=8'], 'the trainer has 8 ranks on this host (train.ranks / train.nodes), but the host has 4 GPUs'],
  [
    4,
    ['train.ranks=2', 'hardware.plan={kind: split, engines: [0, 1, 2]}'],
    "hardware.plan.engines leaves 1 of this host's 4 GPUs to the trainer, which has 2 ranks here",
  ],
  [
    4,
    ['engine.kind=vllm', 'engine.launch={}', 'engine.count=8', 'hardware.plan.kind=colocated'],
    '8 engines × 1 GPUs = 8 GPUs, but this host has 4',
  ],
  [4, ['hardware.plan={kind: split, engines: [4]}'], 'hardware.plan.engines names GPU 4, but this host has 4: 0 to 3'],
  [
    4,
    ['hardware.plan={kind: split, engines: [1], trainer: [1]}'],
    'hardware.plan gives GPU 1 to the engines and to the trainer',
  ],
  [4, ['hardware.plan={kind: split, engines: [1, 1]}'], 'hardware.plan.engines names GPU 1 twice'],
  [
    4,
    ['engine.count=2', 'hardware.plan={kind: split, engines: [1]}'],
    'hardware.plan.engines names 1 GPUs, but 2 engines × 1 GPUs = 2',
  ],
  [
    4,
    ['train.ranks=2', 'hardware.plan={kind: split, trainer: [1]}'],
    'hardware.plan.trainer names 1 GPUs, but the trainer has 2 ranks on this host',
  ],
  [
    4,
    ['engine.device=cuda:1', 'hardware.plan.kind=split'],
    'engine.device is cuda:1, but hardware.plan chooses the GPUs',
  ],
] as const)('on %i GPUs %j is refused: %s', (gpus, overrides, said) => {
  expect(() => planned(gpus, ...overrides)).toThrow(
    expect.objectContaining({ code: 'config.devices', message: said, retriable: false }),
  )
})
