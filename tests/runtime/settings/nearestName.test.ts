import fc from 'fast-check'
import { didYouMean, nearestName } from '../../../runtime/settings/nearestName'

const train = ['steps', 'learningRate', 'warmupSteps', 'loss', 'lora', 'microBatchTokens', 'miniBatches', 'threads']

test.each([
  ['lr', 'learningRate'],
  ['learning_rate', 'learningRate'],
  ['LearningRate', 'learningRate'],
  ['learnignRate', 'learningRate'],
  ['batch_tokens', 'microBatchTokens'],
  ['warmup', 'warmupSteps'],
  ['los', 'loss'],
])('%s means %s', (name, meant) => {
  expect(nearestName(name, train)).toBe(meant)
})

test.each(['q', 'temperature', 'batchsize', ''])("'%s' means none of the known names, so none is suggested", name => {
  expect(nearestName(name, train)).toBeUndefined()
  expect(didYouMean(name, train)).toBe('')
})

test('a name in another way of writing is always found', () => {
  const snake = (name: string) => name.replace(/[A-Z]/g, letter => `_${letter.toLowerCase()}`)
  fc.assert(fc.property(fc.constantFrom(...train), name => nearestName(snake(name), train) === name))
})
