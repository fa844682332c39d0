/** The engines: our own processes, or servers by URL. */
import { z } from 'zod'
import { secretSchema } from '../../runtime/secret'
import { positive } from './numbers'

/** Upper bound on local engines: each is a process with a copy of the model. */
const mostLocal = 8

export const engineSection = z.strictObject({
  kind: z.enum(['local', 'vllm', 'sglang', 'openai', 'recorded', 'simulated']).default('local'),
  /**
   * URLs of servers, one engine each. The servers themselves decide the sizes and types that this section has for local engines.
   */
  urls: z.array(z.string()).max(1000).default([]),
  /** Reference to the server's --api-key. */
  apiKey: secretSchema.optional(),
  /** Model that an OpenAI-compatible server is asked for. Default: the first one that it lists. */
  model: z.string().optional(),
  /** How an SGLang server is paused for new weights. */
  pause: z.enum(['abort', 'retract', 'in_place']).default('abort'),
  /**
   * Running turns continue over the KV of the older weights, and cached prefixes stay; the turns' segments record which weights
   * sampled which tokens. Otherwise that KV is computed anew.
   */
  keepKv: z.boolean().default(false),
  /** recorded: the run whose log answers; RUN on this run's bus, or RUN@BUS. */
  recording: z.string().optional(),
  /** simulated: the engine model, a file that `troupe simulate --calibrate` writes. */
  modelFile: z.string().optional(),
  /** simulated: median length of a turn, tokens; and how long new weights stop an engine, ms. */
  turnTokens: positive.default(256),
  updateMs: z.number().min(0).default(1000),
  /**
   * recorded, simulated: time runs faster by this factor. Default: recorded turns come at once, simulated time is real.
   */
  speed: z.number().positive().optional(),
  count: positive.max(1000).default(1),
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

type EngineFields = z.output<typeof engineSection>

const serverKinds: readonly string[] = ['vllm', 'sglang', 'openai']
/** True for engines that somebody else has started at a URL. */
export const isServer = ({ kind }: EngineFields): boolean => serverKinds.includes(kind)

/** Lists fields that engines without a server need, and fields that they do not have. */
export function engineFaults(engine: EngineFields): readonly (readonly [field: string, why: string])[] {
  const { kind, urls, recording, modelFile, count } = engine
  const faults: [string, string][] = []
  if (!isServer(engine) && kind !== 'local' && urls.length > 0) faults.push(['urls', `${kind} engines have none`])
  if (kind === 'recorded' && recording === undefined)
    faults.push(['recording', 'names no run to answer from: RUN, or RUN@lmdb:DIR'])
  if (kind === 'simulated' && modelFile === undefined)
    faults.push(['modelFile', 'names no engine model file (docs/scheduler.md)'])
  if (kind === 'local' && count > mostLocal)
    faults.push(['count', `${count} local engines on one machine are more than ${mostLocal}`])
  return faults
}

export const schedulerSection = z.strictObject({
  policy: z.enum(['static', 'static-async', 'least-requests', 'kv-headroom']).default('kv-headroom'),
})
