/** What generates: our own process, or servers by URL. */
import { z } from 'zod'
import { secretSchema } from '../../runtime/secret'
import { positive } from './numbers'

/** Each is a process with a copy of the model. */
const mostLocal = 8

export const engineSection = z.strictObject({
  kind: z.enum(['local', 'vllm', 'sglang', 'openai', 'recorded', 'simulated']).default('local'),
  /** Of servers, an engine each; what is said here of sizes and types is then the servers' own to say. */
  urls: z.array(z.string()).max(64).default([]),
  /** Where a server's --api-key is. */
  apiKey: secretSchema.optional(),
  /** Which of its models an OpenAI-compatible server is asked for. Default: the first that it names. */
  model: z.string().optional(),
  /** How an SGLang server is paused for new weights. */
  pause: z.enum(['abort', 'retract', 'in_place']).default('abort'),
  /**
   * Turns that run when new weights come go on over the KV of the older ones, and prefixes in the cache stay; the turns'
   * segments say which weights sampled what. Else that KV is computed anew.
   */
  keepKv: z.boolean().default(false),
  /** recorded: the run that is answered from, RUN of this run's bus or RUN@BUS. */
  recording: z.string().optional(),
  /** simulated: the engine model, a file that `troupe simulate --calibrate` writes. */
  modelFile: z.string().optional(),
  /** simulated: median length of a turn that may stop, and how long new weights stop an engine. */
  turnTokens: positive.default(256),
  updateMs: z.number().min(0).default(1000),
  /** recorded, simulated: time passes so many times faster. Default: recorded turns come at once, simulated time is real. */
  speed: z.number().positive().optional(),
  count: positive.max(64).default(1),
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
/** Somebody else has started it, at a URL. */
export const isServer = ({ kind }: EngineFields): boolean => serverKinds.includes(kind)

/** What engines without a server need, and what they have not. */
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
