/**
 * Reads the development endpoints of a vLLM server: whether they exist, whether it is paused, and its settings.
 *
 * in   a server        out  existing endpoints, device, number of concurrent sequences, adapters
 * Invariant: the requests change nothing. With data parallelism, only the ranks behind this address count.
 * Source: vllm/entrypoints/serve/dev/server_info/api_router.py and config/parallel.py of 0.32.
 */
import type { ServerHttp } from '../server/http'
import { isMissing, isTaken, objectOf } from '../server/reply'

export interface VllmDevelopment {
  /** True if the development endpoints exist: pause, new weights, reset of the prefix cache. */
  readonly takesWeights: boolean
  /** True if the server is paused: another process is changing its weights, or died while it did. */
  readonly isPaused: boolean
  /** True if the server runs with the plugin of cli/setup/vllm, which updates a tied head on CPUs. */
  readonly packsHeads: boolean
  readonly device?: string | undefined
  readonly maxSequences?: number | undefined
  /**
   * Settings of the server's LoRA adapters; null if it was started without --enable-lora, undefined if it does not
   * report them.
   */
  readonly adapters?: { readonly max_lora_rank?: number } | null | undefined
}

interface Config {
  readonly device_config?: { readonly device?: string }
  readonly scheduler_config?: { readonly max_num_seqs?: number }
  readonly parallel_config?: Parallel
  readonly lora_config?: { readonly max_lora_rank?: number } | null
}

interface Parallel {
  readonly data_parallel_size?: number
  readonly data_parallel_size_local?: number
  /** True if each data-parallel rank has an address of its own. */
  readonly data_parallel_external_lb?: boolean
  /** True if the data-parallel ranks of a node share an address. */
  readonly data_parallel_hybrid_lb?: boolean
}

const askMs = 30_000

/**
 * Reads the endpoints. @throws TroupeError engine.lost and engine.timeout if the server does not answer; engine.failed
 * for an unexpected answer
 */
export async function vllmDevelopment(http: ServerHttp): Promise<VllmDevelopment> {
  const paused = await http.get('/is_paused', askMs)
  if (isMissing(paused)) return { takesWeights: false, isPaused: false, packsHeads: false }
  const isPaused = objectOf(http.url, '/is_paused', paused).is_paused === true
  const info = await http.get('/server_info?config_format=json', askMs)
  let config: Config = {}
  let packsHeads = false
  if (!isMissing(info) && isTaken(http.url, '/server_info', info)) {
    const { vllm_config, vllm_env } = objectOf(http.url, '/server_info', info)
    if (typeof vllm_config === 'object' && vllm_config !== null) config = vllm_config
    packsHeads = (vllm_env as Record<string, unknown> | undefined)?.VLLM_TROUPE_PACKS_HEADS === true
  }
  const device = config.device_config?.device
  // Number of concurrent sequences of each data-parallel rank.
  const sequences = config.scheduler_config?.max_num_seqs
  return {
    takesWeights: true,
    isPaused,
    packsHeads,
    device: typeof device === 'string' ? device : undefined,
    maxSequences: Number.isInteger(sequences) ? sequences! * ranksOf(config.parallel_config ?? {}) : undefined,
    adapters: config.lora_config,
  }
}

function ranksOf(parallel: Parallel): number {
  if (parallel.data_parallel_external_lb === true) return 1
  const ranks =
    parallel.data_parallel_hybrid_lb === true ? parallel.data_parallel_size_local : parallel.data_parallel_size
  return Number.isInteger(ranks) && ranks! > 0 ? ranks! : 1
}
