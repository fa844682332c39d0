/**
 * The `train` section of a recipe: which loss a name stands for, and which combinations are refused.
 */

import { grpoOptionsOf, trainerOptionsOf } from '../../../backends/trainer/recipeOptions'
import { lossDefaults, type RecipeConfig, recipeSchema, selectionOf } from '../../../config'
import { groupId } from '../../../messages/ids'
import { selectionOptions } from '../../../replay/trajectories/groups'
import { resolveConfig } from '../../../runtime/settings/resolveConfig'

const base = { name: 'r', model: { from: 'directory', path: '/m' } }
const resolve = (...set: string[]): RecipeConfig =>
  resolveConfig(recipeSchema, { what: 'recipe r', recipe: base, overrides: set }).value
const refusal = (...set: string[]): string => {
  try {
    resolve(...set)
  } catch (thrown) {
    return (thrown as Error).message
  }
  throw new Error(`${set.join(' ')} was not refused`)
}

test('a recipe that says nothing has the clipped token mean of the paper, without a reference', () => {
  expect(grpoOptionsOf(resolve())).toMatchObject({
    objective: 'clip',
    lossNorm: 'batch-tokens',
    clipLow: 0.2,
    clipHigh: 0.28,
    klCoef: 0,
    correction: 'none',
    correctionHigh: 0,
    miniBatches: 1,
    dualClip: 0,
  })
  expect(selectionOf(resolve())).toMatchObject({ advantage: 'std', keep: 16 })
})

test('the epsilon of the draw is 1e-6 unless the recipe says another, and never 0', () => {
  expect(selectionOf(resolve()).epsilon).toBe(1e-6)
  expect(selectionOf(resolve('selection.epsilon=0.1')).epsilon).toBe(0.1)
  expect(refusal('selection.epsilon=0')).toContain('selection.epsilon')
})

test.each([
  ['grpo', { objective: 'clip', lossNorm: 'sequences', clipHigh: 0.2 }, 'std'],
  ['dapo', { objective: 'clip', lossNorm: 'batch-tokens', clipHigh: 0.28 }, 'std'],
  ['dr-grpo', { objective: 'clip', lossNorm: 'constant', constantTokens: 8192 }, 'none'],
  ['gspo', { objective: 'gspo', lossNorm: 'sequences', clipLow: 3e-4, clipHigh: 4e-4 }, 'std'],
  ['cispo', { objective: 'cispo', lossNorm: 'batch-tokens', clipLow: 1 }, 'std'],
] as const)('the loss %s fills in its own norm, clip range and advantage', (loss, options, advantage) => {
  const config = resolve(`train.loss=${loss}`)
  expect(grpoOptionsOf(config)).toMatchObject(options)
  expect(selectionOf(config).advantage).toBe(advantage)
})

test('what the recipe says itself wins over what the loss would fill in', () => {
  expect(grpoOptionsOf(resolve('train.loss=gspo', 'train.clipHigh=0.01'))).toMatchObject({
    clipLow: 3e-4,
    clipHigh: 0.01,
  })
  expect(grpoOptionsOf(resolve('train.lossNorm=group-tokens')).lossNorm).toBe('group-tokens')
})

test('a trainer takes every step that its recipe can make: all rollouts kept, each filling its context', () => {
  const bound = (...set: string[]) => trainerOptionsOf(resolve(...set)).maxStepTokens
  // Steps of rstar2 that train all rollouts: more than 2^27 tokens, which the trainer refuses unless it is told.
  const paper = ['rollout.groupsPerStep=512', 'rollout.groupSize=32', 'limits.contextTokens=12288'] as const
  expect(bound(...paper)).toBe(201_326_592)
  expect(bound('rollout.groupsPerStep=4')).toBe(2 ** 27)
})

test('a resolved recipe resolves to itself, whatever its loss', () => {
  for (const loss of Object.keys(lossDefaults)) {
    const once = resolve(`train.loss=${loss}`, 'train.klCoef=0.01')
    expect(recipeSchema.parse(once)).toEqual(once)
  }
})

test.each([
  [
    ['train.loss=grpo', 'train.lossNorm=batch-tokens'],
    /train\.lossNorm.*normalised by sequences.*train\.loss token-mean/,
  ],
  [['train.lossNorm=sequences'], /train\.lossNorm.*train\.loss grpo/],
  [['train.loss=dr-grpo', 'train.advantage=std'], /train\.advantage.*standard deviation/],
  [['train.loss=gspo', 'train.lossNorm=batch-tokens'], /train\.lossNorm.*normalised by sequences/],
  [['train.lossNorm=constant'], /train\.lossNorm.*train\.loss dr-grpo/],
  [['train.clipLow=1.5'], /train\.clipLow/],
  [['train.klCoef=-1'], /train\.klCoef/],
  [['train.innerSteps=0'], /train\.innerSteps/],
  [['train.microBatchTokens=0'], /train\.microBatchTokens/],
  [['train.warmupSteps=-1'], /train\.warmupSteps/],
  [['rollout.sampling.temperature=0'], /rollout\.sampling\.temperature.*above 0/],
  [['coldStart={demonstrations: 1, epochs: 0}'], /coldStart\.epochs/],
  [['coldStart={demonstrations: 1, batchSequences: 0}'], /coldStart\.batchSequences/],
  [['train.lora={alpha: 0}'], /train\.lora\.alpha/],
  [['train.tisCap=2', 'train.icepop={}'], /train\.tisCap.*icepop/],
  [['train.tisCap=2', 'train.correction={kind: masked}'], /train\.correction.*tisCap weights tokens by the same ratio/],
  [['train.icepop={}', 'train.correction={kind: engine-logprobs}'], /train\.correction.*π_old is π_engine.*icepop/],
  [['train.correction={kind: truncated}', 'train.uncorrected=true'], /train\.uncorrected.*names a correction/],
  [['train.correction={kind: truncated, cap: 0}'], /train\.correction\.cap/],
  [['train.correction={kind: masked, low: 1}'], /train\.correction\.low/],
  [['train.correction={kind: geometric-mask, high: 1}'], /train\.correction\.high/],
  [['train.correction={kind: tis}'], /train\.correction/],
  [['train.miniBatches=0'], /train\.miniBatches/],
  [['train.miniBatches=5', 'rollout.groupsPerStep=4'], /train\.miniBatches.*more than the 4 groups of a step/],
  [
    ['train.miniBatches=2', 'train.miniBatchUnit=sequences', 'train.lossNorm=group-tokens'],
    /train\.miniBatchUnit.*whole groups/,
  ],
  [['train.icepop={low: 1, high: 5}'], /train\.icepop\.low.*1/],
  [['train.icepop={low: 0.5, high: 1}'], /train\.icepop\.high.*1/],
  [['train.dualClip=0.5'], /train\.dualClip.*above 1/],
  [['train.loss=cispo', 'train.dualClip=3'], /train\.dualClip/],
  [['train.clipLow=1'], /train\.clipLow/],
  [['train.ranks=64', 'rollout.groupsPerStep=1'], /train\.ranks.*64 ranks are more than the 16 sequences/],
  [['train.overlong={bufferTokens: 9000}'], /train\.overlong\.bufferTokens.*8192/],
  [['train.lora={targets: []}'], /train\.lora\.targets/],
  [['train.lora={rank: 0}'], /train\.lora\.rank/],
  [['train.lora={rang: 8}'], /did you mean 'train\.lora\.rank'/],
  [['train.los=grpo'], /did you mean 'train\.loss'/],
])('%p is refused with what to do', (set, message) => {
  expect(refusal(...set)).toMatch(message)
})

test('IcePop and the punishment of long answers come with the numbers of their papers', () => {
  expect(grpoOptionsOf(resolve('train.icepop={}'))).toMatchObject({
    correction: 'icepop',
    correctionLow: 0.5,
    correctionHigh: 5,
  })
  const long = resolve('train.overlong={bufferTokens: 4096}', 'limits.responseTokens=20480')
  expect(selectionOf(long).overlong).toEqual({ bufferTokens: 4096, penalty: 1, maxTokens: 20_480 })
  // A replay punishes by the limit that the group was asked for under, as the grouper does.
  const { overlong } = selectionOptions(long, groupId('g'), 8192)
  expect(overlong).toEqual({ bufferTokens: 4096, penalty: 1, maxTokens: 8192 })
})
