/** The estimate of the trainer's memory and of its products agrees with a measured step, so that estimate and trainer cannot drift apart. */
import { measuredStep, models, promptTokens, type StepConfiguration } from '../../../bench/support/measuredStep'

jest.setTimeout(400_000)

const configurations: readonly (readonly [string, StepConfiguration])[] = [
  ['1M parameters in float32', { size: '1M', tokens: 256, flops: true }],
  ['10M parameters, checkpointed', { size: '10M', tokens: 256, checkpointing: true, flops: true }],
  ['1M parameters in bfloat16', { size: '1M', tokens: 256, dtype: 'bfloat16', flops: true }],
  ['1M parameters over two ranks', { size: '1M', tokens: 256, ranks: 2 }],
  ['the same with one reduction an update', { size: '1M', tokens: 256, ranks: 2, gradientReduction: 'update' }],
]

test.each(configurations)('%s: the estimate is within 10 %% of the measured peak', async (_, configuration) => {
  const { estimated, measured, ratio, flops, estimatedFlops } = await measuredStep(configuration)
  expect(Math.abs(ratio - 1)).toBeLessThan(0.1)
  // These are counts of the same tensors; the optimizer's step counters are the rest.
  expect(estimated.weights / measured.weights).toBeCloseTo(1, 2)
  expect(estimated.optimizer / measured.optimizer).toBeCloseTo(1, 2)
  expect(Math.abs(estimated.activations / measured.activations - 1)).toBeLessThan(0.05)
  if (flops === undefined) return
  // Layers with a bias (Qwen2's q, k and v) add it in the product.
  const products = flops['aten.mm']! + (flops['aten.addmm'] ?? 0) + headGradient(configuration)
  expect(products / estimatedFlops).toBeCloseTo(1, 2)
})

/** FLOPs of the gradient of the head's weight in float32, which torch's counter does not know (`addmm_`). */
function headGradient({ size, dtype }: StepConfiguration): number {
  if (dtype === 'bfloat16') return 0
  const { vocab_size, hidden_size } = models[size]
  return 2 * vocab_size * hidden_size * 4 * (128 - promptTokens)
}
