/** Recipes that the schema reads, since logs hold them, and that a new run must not start with. */

import { type RecipeConfig, recipeSchema, refuseAtStart, refuseWithoutRendezvous, startFaults } from '../../config'
import { resolveConfig } from '../../runtime/settings/resolveConfig'

const base = { name: 'r', model: { from: 'directory', path: '/m' } }
const resolve = (...set: string[]): RecipeConfig =>
  resolveConfig(recipeSchema, { what: 'recipe r', recipe: base, overrides: set }).value
const stale = 'rollout.maxStaleness=2'

test('a run that trains on stale tokens names a correction or says that it has none', () => {
  const refusal = () => refuseAtStart(resolve(stale))
  expect(refusal).toThrow(/train\.correction: rollout\.maxStaleness 2.*up to 2 policy versions.*tisCap 0/)
  expect(refusal).toThrow(/^recipe r: a problem\n {2}train\.correction/)
  expect(refusal).toThrow(expect.objectContaining({ code: 'config.invalid' }))
  for (const set of [
    'train.correction={kind: truncated}',
    'train.correction={kind: masked}',
    'train.correction={kind: icepop}',
    'train.correction={kind: geometric-mask}',
    'train.correction={kind: engine-logprobs}',
    'train.tisCap=2',
    'train.icepop={}',
    'train.uncorrected=true',
    'train.steps=0',
    'rollout.maxStaleness=0',
  ]) {
    expect([set, startFaults(resolve(stale, set))]).toEqual([set, []])
  }
})

test.each(['train.correction={kind: masked}', 'train.correction={kind: icepop}', 'train.icepop={}'])(
  'gspo is refused with %s, a mask of tokens',
  set => {
    const field = set.split('=')[0]!
    expect(startFaults(resolve('train.loss=gspo', set))).toEqual([[field, expect.stringContaining('geometric-mask')]])
    expect(startFaults(resolve('train.loss=cispo', set))).toEqual([])
    expect(startFaults(resolve('train.loss=gspo', 'train.correction={kind: geometric-mask}'))).toEqual([])
  },
)

test('engines that sleep during a step cannot generate beside it', () => {
  const uncorrected = 'train.uncorrected=true'
  const colocated = 'hardware.plan={kind: colocated}'
  const why = /^recipe r: a problem\n {2}rollout\.maxStaleness: 2 asks .* the engines sleep during the step/
  expect(() => refuseAtStart(resolve(stale, uncorrected, colocated))).toThrow(why)
  for (const set of ['rollout.maxStaleness=0', 'train.steps=0', 'hardware.plan={kind: split}']) {
    expect([set, startFaults(resolve(stale, uncorrected, colocated, set))]).toEqual([set, []])
  }
})

test('ranks on several hosts need an address to meet at, when a run starts and not before', () => {
  const hosts = ['train.ranks=4', 'train.nodes=2'] as const
  expect(() => refuseWithoutRendezvous(resolve(...hosts))).toThrow(/train\.rendezvous is missing although .*nodes is 2/)
  expect(() => refuseWithoutRendezvous(resolve(...hosts, 'train.rendezvous=learner:29400'))).not.toThrow()
  expect(() => refuseWithoutRendezvous(resolve('train.ranks=4'))).not.toThrow()
  expect(() => resolve('train.ranks=3', 'train.nodes=2')).toThrow(/3 ranks cannot be spread equally over 2 hosts/)
})
