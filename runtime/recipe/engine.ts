/** What generates: our own process, or servers by URL. */
import { z } from 'zod'
import { secretSchema } from '../secret'
import { positive } from './numbers'

export const engineSection = z.strictObject({
  kind: z.enum(['local', 'vllm', 'sglang', 'openai']).default('local'),
  /** Of servers, an engine each; what is said here of sizes and types is then the servers' own to say. */
  urls: z.array(z.string()).max(64).default([]),
  /** Where a server's --api-key is. */
  apiKey: secretSchema.optional(),
  /** Which of its models an OpenAI-compatible server is asked for. Default: the first that it names. */
  model: z.string().optional(),
  /** How an SGLang server is paused for new weights. */
  pause: z.enum(['abort', 'retract', 'in_place']).default('abort'),
  count: positive.max(8).default(1),
  kvTokens: positive.default(65_536),
  blockTokens: positive.default(16),
  maxSequences: positive.default(64),
  deterministic: z.boolean().default(false),
  /** local: records the entropy of the distribution that each token was drawn from, for `replay entropy`. */
  entropies: z.boolean().default(false),
  dtype: z.enum(['float32', 'bfloat16']).default('float32'),
  device: z.string().default('auto'),
  threads: positive.default(2),
})

export const schedulerSection = z.strictObject({
  policy: z.enum(['static', 'static-async', 'least-requests', 'kv-headroom']).default('kv-headroom'),
})
