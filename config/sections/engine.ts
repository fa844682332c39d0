/**
 * The recipe's engines, and the scheduler's policy. Engines are local (Troupe's own processes), inference servers
 * (given by URL, or started by the run), recorded (they repeat the turns of an earlier run), or simulated (they answer
 * with meaningless tokens, after the time that a model of an engine computes).
 */
import { z } from 'zod'
import { secretSchema } from '../../runtime/secrets/secretReference'
import { launchFlagFault } from '../launchFlags'
import { positive } from './numbers'

/**
 * Settings of the servers that a run starts itself: `engine.count` servers, each on the GPUs that it leases and on a
 * free port of 127.0.0.1. They end with the run.
 */
const launchSection = z.strictObject({
  /**
   * Program before the server's arguments. Default: `vllm` from the venv of `troupe setup vllm`, else from PATH;
   * `python3 -m sglang.launch_server`.
   */
  command: z.array(z.string()).min(1).optional(),
  /** Further flags, without leading dashes: `{enforce-eager: true, block-size: 32}`; false leaves a flag out. */
  flags: z.record(z.string(), z.union([z.boolean(), z.number(), z.string()])).default({}),
  /** Environment variables of the server beside those of this process. No secrets: the run records them. */
  env: z.record(z.string(), z.string()).default({}),
  /** Milliseconds until the server must answer; loading a large model and capturing graphs takes many minutes. */
  startTimeoutMs: positive.default(1_800_000),
})

/** Upper bound on local engines; each is a process with its own copy of the model. */
const mostLocal = 8

export const engineSection = z.strictObject({
  kind: z.enum(['local', 'vllm', 'sglang', 'openai', 'recorded', 'simulated']).default('local'),
  /**
   * URLs of servers, one engine each. A server itself decides the sizes and dtypes that this section sets for local
   * engines.
   */
  urls: z.array(z.string()).max(1000).default([]),
  /** Starts vLLM or SGLang servers for this run. Has no effect if `urls` names servers; null: no server is started. */
  launch: launchSection.nullable().optional(),
  /** Reference to the secret that the server expects as its API key (--api-key). */
  apiKey: secretSchema.optional(),
  /** Name of the model to request from an OpenAI-compatible server. Default: the first one that the server lists. */
  model: z.string().optional(),
  /** Mode in which an SGLang server is paused while it loads new weights. */
  pause: z.enum(['abort', 'retract', 'in_place']).default('abort'),
  /**
   * true: after a weight update, running turns continue over the KV of the older weights, and cached prefixes stay; the
   * turns' segments record which weights sampled which tokens. false: that KV is recomputed.
   */
  keepKv: z.boolean().default(false),
  /** For recorded engines: the run whose log answers; RUN on this run's bus, or RUN@BUS. */
  recording: z.string().optional(),
  /** For simulated engines: file with the engine model, such as `troupe simulate --calibrate` writes. */
  modelFile: z.string().optional(),
  /** For simulated engines: median length of a turn, in tokens. */
  turnTokens: positive.default(256),
  /** For simulated engines: milliseconds for which an engine stops when it gets new weights. */
  updateMs: z.number().min(0).default(1000),
  /**
   * For recorded and simulated engines: factor by which time runs faster. Default: recorded turns answer at once,
   * simulated turns in real time.
   */
  speed: z.number().positive().optional(),
  count: positive.max(1000).default(1),
  kvTokens: positive.default(65_536),
  blockTokens: positive.default(16),
  maxSequences: positive.default(64),
  deterministic: z.boolean().default(false),
  /**
   * For local engines: records the entropy of the distribution that each token was drawn from, for `replay entropy`.
   */
  entropies: z.boolean().default(false),
  /**
   * Precision in which engines compute. auto: bfloat16 on a GPU and float32 on a CPU, for local engines and for servers
   * that the run starts.
   */
  dtype: z.enum(['auto', 'float32', 'bfloat16']).default('auto'),
  device: z.string().default('auto'),
  threads: positive.default(2),
})

type EngineFields = z.output<typeof engineSection>

const serverKinds: readonly string[] = ['vllm', 'sglang', 'openai']
/** True for engines that are inference servers: given by URL, or started by the run (`isLaunched`). */
export const isServer = ({ kind }: EngineFields): boolean => serverKinds.includes(kind)

/** True for servers that the run starts, watches and ends itself. */
export const isLaunched = ({ launch, urls }: Pick<EngineFields, 'launch' | 'urls'>): boolean =>
  launch !== undefined && launch !== null && urls.length === 0

/** Lists fields that are missing for this kind of engine, and fields that it does not support, with the reason. */
export function engineFaults(engine: EngineFields): readonly (readonly [field: string, why: string])[] {
  const { kind, urls, recording, modelFile, count, launch } = engine
  const faults: [string, string][] = []
  if (!isServer(engine) && kind !== 'local' && urls.length > 0)
    faults.push(['urls', `${kind} engines do not have this field`])
  if (kind === 'recorded' && recording === undefined)
    faults.push(['recording', 'missing; expected the run to answer from: RUN, RUN@lmdb:DIR or RUN@kafka://HOST:PORT'])
  if (kind === 'simulated' && modelFile === undefined)
    faults.push(['modelFile', 'missing; expected an engine model file (docs/scheduler.md)'])
  if (launch !== undefined && launch !== null) {
    if (kind !== 'vllm' && kind !== 'sglang')
      faults.push(['launch', `starts vLLM or SGLang servers, but engine.kind is ${kind}`])
    else
      for (const flag of Object.keys(launch.flags)) {
        const why = launchFlagFault(kind, flag)
        if (why !== undefined) faults.push([`launch.flags.${flag}`, why])
      }
  }
  if (kind === 'local' && count > mostLocal)
    faults.push(['count', `${count} local engines on one machine; expected at most ${mostLocal}`])
  return faults
}

export const schedulerSection = z.strictObject({
  policy: z.enum(['static', 'static-async', 'least-requests', 'kv-headroom']).default('kv-headroom'),
})
