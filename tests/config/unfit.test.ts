/** A run whose plan does not fit the hardware that its recipe names is refused at its start, as in the dry run. */
import type { RecipeConfig } from '../../config'
import { refuseUnfit, unfitFaults } from '../../config/unfit'
import { recipes } from '../../recipes'
import { loadRecipe } from '../../recipes/load/loadRecipe'

const of = (name: string, ...set: string[]): RecipeConfig => loadRecipe(name, set).config.value
const why = (...set: string[]) => unfitFaults(of('rstar2-8gpu', ...set)).map(fault => fault.why)

test.each([
  [
    'a GPU that engine and resting trainer do not fit',
    'hardware.plan.offloadTrainer=false',
    /^a GPU while engines generate: engine 64\.0 \+ resting trainer 20\.6 = 84\.6 GiB, but a GPU has 80/,
  ],
  ['more ranks than GPUs', 'train.ranks=16', /^train\.ranks 16 exceeds hardware\.gpus 8: lower train\.ranks/],
  [
    'more hosts than the GPUs are on',
    'train.nodes=2',
    /^train\.nodes 2 exceeds the hosts of hardware, 8 gpus \/ 8 gpusPerHost = 1: lower train\.nodes/,
  ],
  [
    'more engines than GPUs',
    'engine.count=5',
    /^5 engines × 2 GPUs = 10 GPUs, but this host has 8: lower engine\.count/,
  ],
  ['GPUs that do not make whole engines', 'hardware.tensorParallel=3', /^4 engines × 3 GPUs = 12 GPUs/],
  [
    'a host whose memory the resting trainer does not fit',
    'hardware.hostMemoryGib=100',
    /^a host needs trainer 165\.\d = 165\.\d GiB, but has 100: set hardware\.plan\.offloadTrainer false, or set train\.lora/,
  ],
])('%s is refused, with the sum', (_, set, said) => {
  expect(() => refuseUnfit(of('rstar2-8gpu', set))).toThrow(
    expect.objectContaining({ code: 'config.does_not_fit', boundary: 'config', retriable: false }),
  )
  expect(why(set)[0]).toMatch(said)
})

test('faults of memory and of deadlines are said together, each with its field', () => {
  const both = unfitFaults(of('rstar2-8gpu', 'train.ranks=16', 'timeouts.stepMs=5'))
  expect(both.map(({ code, field }) => [code, field])).toEqual([
    ['config.does_not_fit', 'hardware'],
    ['config.deadline_too_short', 'timeouts.stepMs'],
  ])
  expect(both[1]!.why).toMatch(/^timeouts\.stepMs is 5 ms, but the optimizer step takes \d{4} s/)
})

test('every recipe of the house fits the hardware that it names', () => {
  for (const name of recipes.keys()) expect([name, unfitFaults(of(name))]).toEqual([name, []])
})

test('servers that somebody else started, and what runs on a CPU, are not added up on the GPUs of the recipe', () => {
  const servers = ['engine.launch=null', 'engine.urls=["http://127.0.0.1:8000"]'] as const
  expect(why(...servers, 'hardware.plan=null')).toEqual([])
  expect(why('hardware.plan=null')).toEqual([expect.stringMatching(/^a GPU that generates and trains at once: /)])
  expect(why('train.device=cpu', 'train.ranks=16')).toEqual([])
  // A laptop: local engines and trainer take turns on its CPU.
  expect(unfitFaults(of('quickstart', 'hardware.plan.kind=colocated', 'engine.count=2'))).toEqual([])
})
