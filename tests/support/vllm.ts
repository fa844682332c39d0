/**
 * Starts a real vLLM server on loopback, from the venv of `troupe setup vllm`.
 *
 * in   a model directory, options of the server        out  the server's address, and a process that can be killed
 */
import { join } from 'node:path'
import { type ServerProcess, startServerProcess } from './serverProcess'

const vllm = require('../../cli/setup/vllm') as {
  step(where: unknown): { readonly venv: string; isDone(): boolean }
}
const { places } = require('../../cli/setup/places') as { places(): unknown }

export interface VllmServerOptions {
  readonly modelDirectory: string
  readonly contextTokens: number
  readonly dtype?: 'float32' | 'bfloat16'
  /** Device of the server. cuda also enables sleep, in which the server frees GPU memory. Default cpu. */
  readonly device?: 'cpu' | 'cuda'
  /** true: enables the development endpoints, which pause and new weights need. Default true. */
  readonly development?: boolean
  /**
   * true: processed logprobs, scheduling by priority, counts of cached tokens. false: vLLM's defaults. Default true.
   */
  readonly forTraining?: boolean
  /** Largest rank of the LoRA adapters that the server loads while it runs. Default: the server loads none. */
  readonly adapterRank?: number
  readonly maxSequences?: number
  /**
   * Number of torch's threads. They are not bound to cores: by vLLM's default two servers would bind to one. Default 2.
   */
  readonly threads?: number
  readonly flags?: readonly string[]
}

export type VllmServer = ServerProcess

export const vllmIsInstalled = (): boolean => vllm.step(places()).isDone()

export async function startVllm(options: VllmServerOptions): Promise<VllmServer> {
  const { venv, isDone } = vllm.step(places())
  if (!isDone()) throw new Error(`${venv} holds no vLLM: run npx troupe setup vllm`)
  const python = join(venv, 'bin/python')
  const { modelDirectory, contextTokens, dtype = 'float32', development = true, forTraining = true } = options
  const isOnCpu = options.device !== 'cuda'
  const fit = forTraining
    ? ['--scheduling-policy', 'priority', '--logprobs-mode', 'processed_logprobs', '--enable-prompt-tokens-details']
    : []
  const adapters =
    options.adapterRank === undefined
      ? []
      : ['--enable-lora', '--max-lora-rank', String(options.adapterRank), '--max-loras', '2']
  const args = (port: number) => [
    ...['-m', 'vllm.entrypoints.cli.main', 'serve', modelDirectory, '--host', '127.0.0.1', '--port', String(port)],
    ...['--enforce-eager', '--dtype', dtype, '--max-model-len', String(contextTokens)],
    ...['--max-num-seqs', String(options.maxSequences ?? 16), ...fit, ...adapters, ...(options.flags ?? [])],
    ...(isOnCpu ? [] : ['--enable-sleep-mode', '--gpu-memory-utilization', '0.5']),
  ]
  const env = {
    ...(isOnCpu ? { VLLM_TARGET_DEVICE: 'cpu', VLLM_CPU_KVCACHE_SPACE: '1' } : {}),
    TORCHDYNAMO_DISABLE: '1',
    HF_HUB_OFFLINE: '1',
    VLLM_CPU_OMP_THREADS_BIND: 'nobind',
    OMP_NUM_THREADS: String(options.threads ?? 2),
    VLLM_NO_USAGE_STATS: '1',
    ...(development ? { VLLM_SERVER_DEV_MODE: '1' } : {}),
    ...(options.adapterRank === undefined ? {} : { VLLM_ALLOW_RUNTIME_LORA_UPDATING: '1' }),
  }
  return startServerProcess({ kind: 'vLLM', python, args, env, upPath: '/health' })
}
