/**
 * Work of the trainer: floating-point operations and bytes of a micro-batch and of an optimizer update, on one rank.
 *
 * in   a model's shape, how it is trained, lengths of the sequences
 * out  operations and bytes
 * Invariant: each term is a product or a transfer that the trainer makes (model/logprobs.py, batch/packed_attention.py,
 * FSDP2). Operations on single numbers (norms, activations, softmax) are not counted: the rates contain them, since
 * their number grows with the tokens, as that of the products does. `bench estimate` divides the work by rates and
 * compares the seconds with measured steps.
 */
import { layerMatrices } from './activations'
import { loraParameters, type ModelShape } from './modelShape'

/** Settings by which one rank trains. */
export interface TrainedHow {
  readonly shape: ModelShape
  readonly device: 'cpu' | 'cuda'
  readonly half: boolean
  readonly checkpointing: boolean
  readonly loraRank: number | undefined
  readonly ranks: number
}

/** `lengths`: tokens of each sequence of a micro-batch. `trained`: tokens whose log-probabilities the head computes. */
export interface Sequences {
  readonly lengths: readonly number[]
  readonly trained: number
}

export interface MicroBatchWork {
  /** FLOPs of the layers' matrices, of the adapters and of the head. */
  readonly matrices: number
  /** FLOPs of attention's products (scores and weighted values), whose number grows with the pairs of tokens. */
  readonly attention: number
  /** Bytes that do not depend on the tokens: gradients that are added up, copies of weights, gathered shards. */
  readonly bytes: number
}

/**
 * A number for each kind of product: its FLOPs in one forward pass (`forwardFlops`), or the work of an update as a
 * multiple of those FLOPs (`updatePasses`).
 */
export interface Passes {
  /** Products with the layers' matrices. */
  readonly matrices: number
  readonly attention: number
  readonly head: number
}

/** Sequences with at least this share of the longest one's length are rows of one attention call, padded to it. */
const similarLength = 0.75

/**
 * Number of keys in a block of attention's kernel, which leaves out later tokens by whole blocks: torch's CPU kernel
 * computes all pairs of a sequence of up to 512 tokens, and about half of those of a long one.
 */
const keyBlock = { cpu: 512, cuda: 1 } as const

/**
 * FLOPs of one forward pass: 2 for each weight and token; 4 for each computed pair of tokens, layer, head and
 * dimension. Without checkpointing the last layer's MLP computes only the tokens that the head needs
 * (trainer/batch/last_mlp.py).
 */
export function forwardFlops(
  { shape: s, device, checkpointing }: Pick<TrainedHow, 'shape' | 'device' | 'checkpointing'>,
  { lengths, trained }: Sequences,
): Passes {
  const tokens = lengths.reduce((sum, length) => sum + length, 0)
  const leftOut = checkpointing ? 0 : 3 * s.hidden * s.intermediate * (tokens - trained)
  return {
    matrices: 2 * (layerMatrices(s) * s.layers * tokens - leftOut),
    attention: 4 * s.layers * s.heads * s.headDim * computedPairs(lengths, keyBlock[device]),
    head: 2 * s.vocabulary * s.hidden * trained,
  }
}

/**
 * Work of an update's forward and backward passes, as multiples of one forward pass. A backward pass counts 2 for
 * matrices and 2.5 for attention. The head computes its logits twice; checkpointing computes each layer twice except
 * for its last product, which no gradient needs. LoRA leaves out the gradients of frozen weights.
 */
export function updatePasses({ shape, checkpointing, loraRank }: TrainedHow): Passes {
  const again = checkpointing ? 1 - (shape.hidden * shape.intermediate) / layerMatrices(shape) : 0
  const gradients = loraRank === undefined ? 2 : 1
  return { matrices: 1 + gradients + again, attention: 3.5 + (checkpointing ? 1 : 0), head: 2 + gradients }
}

export function microBatchWork(how: TrainedHow, sequences: Sequences): MicroBatchWork {
  const { shape, loraRank, checkpointing } = how
  const forward = forwardFlops(how, sequences)
  const passes = updatePasses(how)
  const tokens = sequences.lengths.reduce((sum, length) => sum + length, 0)
  const adapters = loraRank === undefined ? 0 : 2 * loraParameters(shape, loraRank) * tokens * (checkpointing ? 4 : 3)
  return {
    matrices: forward.matrices * passes.matrices + forward.head * passes.head + adapters,
    attention: forward.attention * passes.attention,
    bytes: fixedBytes(how) + gatheredBytes(how) + reducedBytes(how),
  }
}

/**
 * Bytes of memory traffic of a micro-batch, whatever its tokens: a gradient is written, read and added to (12 bytes for
 * each trained parameter), and a single rank with bfloat16 products casts its float32 weights (6 bytes for each).
 */
export function fixedBytes({ shape, half, loraRank, ranks }: TrainedHow): number {
  const weights = shape.layers * layerMatrices(shape) + (shape.tied ? 1 : 2) * shape.vocabulary * shape.hidden
  const trained = loraRank === undefined ? weights : loraParameters(shape, loraRank)
  return 12 * trained + (half && ranks === 1 ? 6 * weights : 0)
}

/**
 * Bytes of weights that a rank receives for one micro-batch: every layer before its forward and before its backward
 * pass, the embedding and the head once.
 */
export function gatheredBytes({ shape, half, ranks }: TrainedHow): number {
  const root = (shape.tied ? 1 : 2) * shape.vocabulary * shape.hidden
  return (half ? 2 : 4) * (2 * shape.layers * layerMatrices(shape) + root) * (1 - 1 / ranks)
}

/** Bytes of float32 gradients that a rank sends when they are summed over ranks. */
export function reducedBytes({ shape, loraRank, ranks }: TrainedHow): number {
  const weights = shape.layers * layerMatrices(shape) + (shape.tied ? 1 : 2) * shape.vocabulary * shape.hidden
  return 4 * (loraRank === undefined ? weights : loraParameters(shape, loraRank)) * (1 - 1 / ranks)
}

/**
 * Bytes of an update on one rank, 4 for each number: AdamW reads value, gradient and two moments, and writes value and
 * moments; the gradient's norm reads the gradient once more.
 */
export const updateBytes = (trainable: number, ranks: number): number => (32 * trainable) / ranks

/** Pairs of tokens that attention computes. Sequences of similar length are padded to the longest of them. */
function computedPairs(lengths: readonly number[], block: number): number {
  const sorted = [...lengths].sort((a, b) => b - a)
  let longest = 0
  let sum = 0
  for (const length of sorted) {
    if (length < longest * similarLength || longest === 0) longest = length
    const blocks = Math.floor(longest / block)
    // Queries of block k meet the keys of k blocks; those after the last whole block meet all keys.
    sum += (block ** 2 * blocks * (blocks + 1)) / 2 + (longest - blocks * block) * longest
  }
  return sum
}
