/**
 * transformers configs of the models that the paper trains, as their owners publish them. A dry run reads them to
 * estimate memory and time without the weights.
 */

/** Config of Qwen/Qwen3-14B-Base. */
export const qwen3At14b = {
  model_type: 'qwen3',
  hidden_size: 5120,
  intermediate_size: 17_408,
  num_hidden_layers: 40,
  num_attention_heads: 40,
  num_key_value_heads: 8,
  head_dim: 128,
  vocab_size: 151_936,
  max_position_embeddings: 32_768,
  rope_theta: 1_000_000,
  rms_norm_eps: 1e-6,
  tie_word_embeddings: false,
} as const

/** Config of Qwen/Qwen2.5-32B-Instruct. */
export const qwen25At32b = {
  model_type: 'qwen2',
  hidden_size: 5120,
  intermediate_size: 27_648,
  num_hidden_layers: 64,
  num_attention_heads: 40,
  num_key_value_heads: 8,
  vocab_size: 152_064,
  max_position_embeddings: 32_768,
  rope_theta: 1_000_000,
  rms_norm_eps: 1e-6,
  tie_word_embeddings: false,
} as const
