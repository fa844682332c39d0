/**
 * Bytes that autograd keeps from the forward pass of one micro-batch to its backward pass.
 *
 * in   the architecture of a Llama or Qwen2 model, how a rank trains it
 * out  bytes of one layer, of the whole model
 * Invariant: each term is a tensor that transformers' LlamaDecoderLayer or the trainer's packed attention saves,
 * counted once where two operations save the same memory. `bench estimate` and tests/config/estimate compare the sums
 * with measured steps.
 */
import type { ModelShape } from './modelShape'

/** Settings by which one rank computes a micro-batch. */
export interface MicroBatchShape {
  readonly shape: ModelShape
  readonly tokens: number
  /** true: matrix products in bfloat16 (train.dtype). */
  readonly half: boolean
  readonly checkpointing: boolean
  /** Rank of the LoRA adapters; undefined if all parameters are trained. */
  readonly loraRank: number | undefined
  readonly ranks: number
  /** Time at which ranks sum their gradients: after each micro-batch (default), or once before an update. */
  readonly gradientReduction?: GradientReduction | undefined
  readonly device: 'cpu' | 'cuda'
}

export type GradientReduction = 'micro-batch' | 'update'

/** Number of parameters in the seven weight matrices of a layer (attention and MLP). */
export function layerMatrices({ hidden, intermediate, heads, kvHeads, headDim }: ModelShape): number {
  return 2 * hidden * (heads + kvHeads) * headDim + 3 * hidden * intermediate
}

/**
 * Bytes of a number in the residual stream: 2 if several ranks compute in bfloat16, else 4. A single rank keeps the
 * stream in float32 and casts the inputs of matrix products (autocast); several ranks gather bfloat16 parameters, so
 * the stream is bfloat16.
 */
export const streamBytes = ({ half, ranks }: MicroBatchShape): number => (half && ranks > 1 ? 2 : 4)

/**
 * Bytes that a layer saves for a token.
 *
 * Both norms save their input in float32, the normalised input in the stream's dtype (LoRA freezes the norms and saves
 * none), and their output, which the matrix products read. Autocast saves a bfloat16 copy of that output for each of q,
 * k, v, gate and up. Attention saves q, k, v, its output and a copy of it that o_proj reads; the MLP saves gate, its
 * activation, up and their product; an adapter saves `rank` numbers a matrix. 1/rms and the log-sum-exp of each head
 * are float32.
 */
export function layerBytesPerToken(step: MicroBatchShape): number {
  const { shape: s, half, loraRank, ranks } = step
  const [q, kv] = [s.heads * s.headDim, s.kvHeads * s.headDim]
  const product = half ? 2 : 4
  const normalised = loraRank === undefined ? streamBytes(step) : 0
  const norms = 2 * (4 + normalised) * s.hidden
  const inputs = product * (half && ranks === 1 ? 5 : 2) * s.hidden
  return norms + inputs + product * (3 * q + 2 * kv + 4 * s.intermediate + 7 * (loraRank ?? 0)) + 4 * (2 + s.heads)
}

/**
 * Bytes of the bfloat16 copies of a layer's matrices that autocast makes; several ranks gather bfloat16 parameters
 * instead.
 */
export const layerCopiesBytes = ({ shape, half, ranks }: MicroBatchShape): number =>
  half && ranks === 1 ? 2 * layerMatrices(shape) : 0

/** Bytes that one layer saves for its backward pass; with checkpointing, when its forward pass is computed again. */
export const layerBytes = (step: MicroBatchShape): number =>
  step.tokens * layerBytesPerToken(step) + layerCopiesBytes(step)

/**
 * Bytes that the model holds for the backward pass when its forward pass has ended: all that each layer saves or, with
 * checkpointing, only the layer's input; the last norm's input and normalised input; the head's input and the bfloat16
 * copy of the head's weight; cos and sin of the positions.
 */
export function savedBytes(step: MicroBatchShape): number {
  const { shape: s, tokens, half, checkpointing, loraRank, ranks } = step
  const layer = checkpointing ? streamBytes(step) * tokens * s.hidden : layerBytes(step)
  const lastNorm = (4 + (loraRank === undefined ? streamBytes(step) : 0)) * s.hidden
  const headInput = (half ? 2 : 4) * s.hidden
  const headCopy = half && ranks === 1 ? 2 * s.vocabulary * s.hidden : 0
  return s.layers * layer + tokens * (lastNorm + headInput + 2 * streamBytes(step) * s.headDim) + headCopy
}
