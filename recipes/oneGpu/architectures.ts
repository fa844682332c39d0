/**
 * Fields of the transformers configs of the models of these recipes, with the values that their owners publish.
 * `train --dry-run` and `rehearse` read them in place of the weights.
 */

const qwen25 = {
  model_type: 'qwen2',
  num_key_value_heads: 2,
  vocab_size: 151_936,
  max_position_embeddings: 32_768,
  rope_theta: 1_000_000,
  rms_norm_eps: 1e-6,
  tie_word_embeddings: true,
} as const

/** Config of Qwen/Qwen2.5-0.5B-Instruct. */
export const qwen25At05b = {
  ...qwen25,
  hidden_size: 896,
  intermediate_size: 4864,
  num_hidden_layers: 24,
  num_attention_heads: 14,
} as const

/** Config of Qwen/Qwen2.5-1.5B-Instruct. */
export const qwen25At15b = {
  ...qwen25,
  hidden_size: 1536,
  intermediate_size: 8960,
  num_hidden_layers: 28,
  num_attention_heads: 12,
} as const

/** Config of Qwen/Qwen3-4B. */
export const qwen3At4b = {
  model_type: 'qwen3',
  hidden_size: 2560,
  intermediate_size: 9728,
  num_hidden_layers: 36,
  num_attention_heads: 32,
  num_key_value_heads: 8,
  head_dim: 128,
  vocab_size: 151_936,
  max_position_embeddings: 40_960,
  rope_theta: 1_000_000,
  rms_norm_eps: 1e-6,
  tie_word_embeddings: true,
} as const
