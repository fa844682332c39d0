/**
 * Sizes of a dense decoder, and its numbers of parameters.
 *
 * in   a transformers config        out  hidden size, layers, heads, …; parameters of the model and of LoRA adapters
 */

export interface ModelShape {
  readonly hidden: number
  readonly layers: number
  readonly heads: number
  readonly kvHeads: number
  readonly headDim: number
  readonly intermediate: number
  readonly vocabulary: number
  /** true: the head's weights are those of the embedding. */
  readonly tied: boolean
}

/**
 * Reads the shape from the transformers config of a dense decoder. A missing field gets a default, as of a Llama of 7
 * billion parameters; `intermediate_size` is then four times the hidden size.
 */
export function shapeOf(config: Readonly<Record<string, unknown>>): ModelShape {
  const number = (name: string, otherwise: number) =>
    typeof config[name] === 'number' ? (config[name] as number) : otherwise
  const hidden = number('hidden_size', 4096)
  const heads = number('num_attention_heads', 32)
  return {
    hidden,
    heads,
    layers: number('num_hidden_layers', 32),
    kvHeads: number('num_key_value_heads', heads),
    headDim: number('head_dim', hidden / heads),
    intermediate: number('intermediate_size', 4 * hidden),
    vocabulary: number('vocab_size', 32_000),
    tied: config.tie_word_embeddings === true,
  }
}

export function parametersOf(s: ModelShape): number {
  const attention = 2 * s.hidden * s.heads * s.headDim + 2 * s.hidden * s.kvHeads * s.headDim
  const layer = attention + 3 * s.hidden * s.intermediate + 2 * s.hidden
  return s.layers * layer + (s.tied ? 1 : 2) * s.vocabulary * s.hidden + s.hidden
}

/** Number of parameters of LoRA adapters on every linear layer of every block. */
export function loraParameters(s: ModelShape, rank: number): number {
  const [q, kv] = [s.heads * s.headDim, s.kvHeads * s.headDim]
  const sides = 2 * (s.hidden + q) + 2 * (s.hidden + kv) + 3 * (s.hidden + s.intermediate)
  return s.layers * rank * sides
}

/** Bytes of the KV cache that one token takes: keys and values of every layer, 2 bytes each. */
export const kvBytesOf = (s: ModelShape): number => 2 * s.layers * s.kvHeads * s.headDim * 2
