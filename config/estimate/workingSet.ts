/**
 * Estimates the largest memory that a micro-batch takes beyond a rank's own weights, gradients and AdamW's moments.
 *
 * in   how a rank computes one micro-batch
 * out  bytes at the peak, and the phase of the step in which they are taken
 * Invariant: the phases (`Moment`) are those of grpo_step.py: the head's forward and backward pass (model/logprobs.py),
 * a layer's, the sum of a layer's gradients, the gradient of the embedding. The result is the phase with the largest
 * sum. Several ranks (FSDP2): the embedding and the head are gathered during the whole micro-batch, a layer and the
 * next one while a rank computes with them; a layer's gradients are summed over ranks from a float32 copy, freed at the
 * next layer's sum.
 */
import {
  layerBytes,
  layerCopiesBytes,
  layerMatrices,
  type MicroBatchShape,
  savedBytes,
  streamBytes,
} from './activations'
import { headChunkRows } from './headChunk'

export interface Moment {
  readonly name: string
  /** Bytes of activations and temporary tensors; includes what `savedBytes` counts and is still held. */
  readonly bytes: number
  /** Bytes of other ranks' parameters, and of gradients that are summed over ranks. */
  readonly gathered: number
}

/** Returns the phase in which the micro-batch takes the most memory. */
export function peakMoment(step: MicroBatchShape): Moment {
  const moments = [headForward, headBackward, layerForward, layerBackward, layerReduction, embeddingGradient]
  const taken = ({ bytes, gathered }: Moment) => bytes + gathered
  return moments.map(moment => moment(step)).reduce((one, other) => (taken(other) > taken(one) ? other : one))
}

function headForward(step: MicroBatchShape): Moment {
  const { tokens, shape: s, half } = step
  const { logits, isCut } = chunkOf(step)
  const { root, layer } = gatheredOf(step)
  // Number of bytes for each logit: logits and their exponentials, float32. A second chunk is made before the first is
  // dropped, and bfloat16 logits before their float32 copy.
  const perLogit = isCut ? (half ? 14 : 12) : 8
  const states = streamBytes(step) * tokens * s.hidden
  return {
    name: "the head's forward pass",
    bytes: savedBytes(step) + states + perLogit * logits,
    gathered: root + layer,
  }
}

function headBackward(step: MicroBatchShape): Moment {
  const { tokens, shape: s, half } = step
  const { logits, isCut } = chunkOf(step)
  const { root, layer } = gatheredOf(step)
  const weight = trainedHead(step)
  // The gradient of the head's weight is summed over chunks in float32; in bfloat16, each chunk's part is a second
  // tensor.
  const float32 = 4 * tokens * s.hidden + 4 * weight + (isCut ? 8 : 4) * logits
  const bfloat16 = 2 * tokens * s.hidden + 4 * weight + Math.max((isCut ? 12 : 6) * logits, 6 * logits + 2 * weight)
  return {
    name: "the head's backward pass",
    bytes: savedBytes(step) + (half ? bfloat16 : float32),
    gathered: root + layer,
  }
}

/**
 * Returns the memory of a layer's forward pass, counted only with checkpointing: then a layer's intermediates live
 * until the layer ends. Autocast keeps its copies of trained matrices until the last layer, and those of frozen ones
 * (LoRA) no longer than they are used.
 */
function layerForward(step: MicroBatchShape): Moment {
  const { shape: s, tokens, checkpointing, loraRank } = step
  const { root, layer } = gatheredOf(step)
  const copies = (loraRank === undefined ? s.layers : 1) * layerCopiesBytes(step)
  const kept = s.layers * streamBytes(step) * tokens * s.hidden + copies
  return {
    name: "a layer's forward pass",
    bytes: checkpointing ? kept + mlpBytes(step) : 0,
    gathered: checkpointing ? root + 2 * layer : 0,
  }
}

function layerBackward(step: MicroBatchShape): Moment {
  const { shape: s, tokens, checkpointing } = step
  const { root, layer, reduced } = gatheredOf(step)
  const stream = streamBytes(step) * tokens * s.hidden
  // `savedBytes` counts the layer's input already.
  const again = checkpointing ? layerBytes(step) - stream : 0
  return {
    name: "a layer's backward pass",
    bytes: savedBytes(step) + again + waitingHead(step) + 3 * stream + mlpBytes(step),
    gathered: root + 2 * layer + reduced,
  }
}

/**
 * Moment after a layer's backward pass: its activations are freed, its gradients and their float32 copy are in memory.
 */
function layerReduction(step: MicroBatchShape): Moment {
  const { shape: s, tokens, checkpointing, ranks, loraRank } = step
  const { root, layer, reduced } = gatheredOf(step)
  const stream = streamBytes(step) * tokens * s.hidden
  const saved = savedBytes(step) - (checkpointing ? stream : layerBytes(step))
  const gradients = loraRank === undefined ? layer : 0
  return {
    name: "the sum of a layer's gradients over ranks",
    bytes: ranks > 1 ? saved + waitingHead(step) + stream : 0,
    gathered: ranks > 1 ? root + layer + gradients + 2 * reduced : 0,
  }
}

function embeddingGradient(step: MicroBatchShape): Moment {
  const { shape: s, tokens, loraRank } = step
  const { root, reduced } = gatheredOf(step)
  const frozen = loraRank !== undefined
  const own = frozen ? 0 : numberBytes(step) * s.vocabulary * s.hidden
  const whole = frozen ? 0 : root
  const sum = frozen ? 0 : (root / numberBytes(step)) * 4
  return {
    name: "the embedding's gradient",
    bytes: waitingHead(step) + own + streamBytes(step) * tokens * s.hidden,
    // The larger of: the gathered parameters; the float32 copy of the gradients with the rank's share of their sum.
    gathered: reduced + Math.max(root, whole - own - waitingHead(step) + sum * (1 + 1 / step.ranks)),
  }
}

/**
 * Bytes of the MLP's temporary tensors: gradients of two of its vectors (the third, the product, is freed by then), or
 * of one vector and one weight matrix, whichever is larger.
 */
function mlpBytes(step: MicroBatchShape): number {
  const { shape: s, tokens, half, loraRank, ranks } = step
  const perNumber = half ? (ranks > 1 ? 2 : 6) : 4
  const matrix = loraRank === undefined ? perNumber * s.hidden * s.intermediate : 0
  const vector = (half ? 2 : 4) * tokens * s.intermediate
  return vector + Math.max(vector, matrix)
}

/** Bytes of a parameter, and of its gradient, while a micro-batch is computed. */
const numberBytes = ({ half, ranks }: MicroBatchShape): number => (half && ranks > 1 ? 2 : 4)

const trainedHead = ({ shape: s, loraRank }: MicroBatchShape): number =>
  loraRank === undefined ? s.vocabulary * s.hidden : 0

/**
 * Bytes of the head's gradient until the embedding's is computed: a tied head shares one gradient with the embedding,
 * and several ranks sum both over ranks at the end. 0 for an untied head on one rank.
 */
const waitingHead = (step: MicroBatchShape): number =>
  step.shape.tied || step.ranks > 1 ? numberBytes(step) * trainedHead(step) : 0

/**
 * Bytes that a rank takes only if there are several: `root`, the gathered embedding and head; `layer`, one gathered
 * layer; `reduced`, the float32 gradients of that layer.
 */
function gatheredOf(step: MicroBatchShape): { root: number; layer: number; reduced: number } {
  const { shape: s, ranks, loraRank } = step
  if (ranks === 1) return { root: 0, layer: 0, reduced: 0 }
  const matrices = layerMatrices(s)
  return {
    root: numberBytes(step) * (s.tied ? 1 : 2) * s.vocabulary * s.hidden,
    layer: numberBytes(step) * matrices,
    reduced: loraRank === undefined ? 4 * matrices : 0,
  }
}

function chunkOf({ shape: { vocabulary }, tokens, device }: MicroBatchShape): { logits: number; isCut: boolean } {
  const rows = headChunkRows(vocabulary, device)
  return { logits: Math.min(rows, tokens) * vocabulary, isCut: rows < tokens }
}
