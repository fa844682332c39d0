/**
 * Reads a vLLM server's `/metrics`: the size of its KV cache, and how much of it is in use.
 *
 * in   the Prometheus text        out  sizes in tokens, gauges, counters since the server's start
 * Invariant: a missing metric is an error that names it, never a zero. Servers with several engines inside (data
 * parallel) label each metric by engine: sizes and counters are summed, the use of the cache is averaged, weighted by
 * the sizes.
 * Source: vllm/v1/metrics/loggers.py of 0.32; the labels of cache_config_info are fields of its CacheConfig. One config
 * is written under the label of every engine: its num_gpu_blocks is the sum over all of them, its kv_cache_size_tokens
 * of one (v1/engine/core_client.py, config/cache.py).
 */
import { TroupeError } from '../../../runtime/errors'

export interface VllmMetrics {
  readonly kvTokens: number
  readonly blockTokens: number
  readonly prefixCaching: boolean
  /**
   * Share of the KV cache's blocks that running requests refer to, 0 to 1; blocks that are only cached count as free.
   */
  readonly usedShare: number
  readonly running: number
  readonly waiting: number
  readonly preemptions: number
  readonly generatedTokens: number
  readonly promptTokens: number
  /** Number of prompt tokens found in the prefix cache since the server's start. */
  readonly cachedPromptTokens: number
}

interface Sample {
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

const sampleLine = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\d+)?$/
const labelPair = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g

/** Groups the samples of a Prometheus text by the name of their metric. Other lines are skipped. */
function parsePrometheus(text: string): ReadonlyMap<string, readonly Sample[]> {
  const samples = new Map<string, Sample[]>()
  for (const line of text.split('\n')) {
    if (line.startsWith('#')) continue
    const match = sampleLine.exec(line.trim())
    if (match === null) continue
    const [, name, labels, number] = match
    const value = number === '+Inf' ? Number.POSITIVE_INFINITY : Number(number)
    const pairs = [...(labels ?? '').matchAll(labelPair)].map(([, key, raw]) => [key, unescaped(raw!)] as const)
    const known = samples.get(name!)
    const sample = { labels: Object.fromEntries(pairs), value }
    if (known === undefined) samples.set(name!, [sample])
    else known.push(sample)
  }
  return samples
}

const unescaped = (text: string) => text.replace(/\\(.)/g, (_, char: string) => (char === 'n' ? '\n' : char))

/** Parses the text. @throws TroupeError engine.failed with the metric that is missing, not a number, or below 0 */
export function vllmMetrics(url: string, text: string): VllmMetrics {
  const samples = parsePrometheus(text)
  const of = (...names: readonly string[]): readonly Sample[] => {
    const found = names.map(name => samples.get(`vllm:${name}`)).find(each => each !== undefined)
    if (found === undefined) throw missing(url, `the metric vllm:${names[0]} is missing on /metrics`)
    const wrong = found.find(({ value }) => !(Number.isFinite(value) && value >= 0))
    if (wrong !== undefined)
      throw missing(url, `the metric vllm:${names[0]} is ${wrong.value}, expected a number of at least 0`)
    return found
  }
  const total = (...names: readonly string[]) => of(...names).reduce((sum, { value }) => sum + value, 0)
  const caches = of('cache_config_info').map(({ labels }) => {
    const blockTokens = Number(labels.block_size)
    const blocks = Number(labels.num_gpu_blocks)
    if (!(blockTokens > 0 && blocks > 0 && Number.isFinite(blockTokens * blocks))) {
      const seen = `block_size="${labels.block_size}", num_gpu_blocks="${labels.num_gpu_blocks}"`
      throw missing(url, `the metric vllm:cache_config_info does not report the size of the KV cache (${seen})`)
    }
    const own = Number(labels.kv_cache_size_tokens)
    const prefixCaching = labels.enable_prefix_caching === 'True'
    return { engine: labels.engine, blockTokens, blocks, own: own > 0 && Number.isFinite(own) ? own : 0, prefixCaching }
  })
  const isOwn = caches.every(({ own }) => own > 0)
  // Older servers report only the sum over the engines, so the value is the same under each label.
  const isSum = !isOwn && caches.every(({ blocks }) => blocks === caches[0]!.blocks)
  const sizes = caches.map(({ engine, blockTokens, blocks, own }) => {
    const tokens = isOwn ? own : (blockTokens * blocks) / (isSum ? caches.length : 1)
    return [engine, tokens] as const
  })
  const sizeOf = new Map(sizes)
  const kvTokens = Math.floor(sizes.reduce((sum, [, tokens]) => sum + tokens, 0))
  const usage = of('kv_cache_usage_perc').map(({ labels, value }) => {
    return { value, weight: sizeOf.get(labels.engine) ?? kvTokens / caches.length }
  })
  const weights = usage.reduce((sum, { weight }) => sum + weight, 0)
  return {
    kvTokens,
    blockTokens: Math.max(...caches.map(cache => cache.blockTokens)),
    prefixCaching: caches.every(cache => cache.prefixCaching),
    usedShare: usage.reduce((sum, { value, weight }) => sum + value * weight, 0) / weights,
    running: total('num_requests_running'),
    waiting: total('num_requests_waiting'),
    preemptions: total('num_preemptions_total', 'num_preemptions'),
    generatedTokens: total('generation_tokens_total', 'generation_tokens'),
    promptTokens: total('prompt_tokens_total', 'prompt_tokens'),
    // Prompt tokens found in the prefix cache: counted since about vLLM 0.19; before, the cache's hits give the same
    // number.
    cachedPromptTokens: total('prompt_tokens_cached_total', 'prefix_cache_hits_total', 'prefix_cache_hits'),
  }
}

const missing = (url: string, what: string): TroupeError =>
  new TroupeError('engine.failed', {
    boundary: 'engine',
    retriable: true,
    message: `the metrics of the vLLM server at ${url} cannot be used: ${what}`,
    hint: 'use a vLLM server that was started without --disable-log-stats, or a newer vLLM',
  })
