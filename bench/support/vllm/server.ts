/**
 * Starts a real vLLM server for a benchmark, on this machine's CPU with SmolLM2, and engines of Troupe's on it.
 *
 * in   how large its KV cache is, how many sequences run at once        out  engines, its counters, the venv's Python
 * Arms that are compared with each other share one server. Callers empty its prefix cache by `forgetPrefixes` before
 * each round, so that no arm finds prefixes that another arm has computed.
 */
import { existsSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { type VllmMetrics, vllmMetrics } from '../../../backends/engines/vllm/metrics'
import { startVllmEngine, type VllmEngine } from '../../../backends/engines/vllm/vllm'
import { startRenderer } from '../../../backends/renderer/rendererProcess'
import { smollm2Directory } from '../../../cli/setupCommand'
import type { RecipeConfig } from '../../../config'
import type { EngineId } from '../../../messages/ids'
import { startVllm } from '../../../tests/support/vllm'

export interface BenchServerOptions {
  readonly contextTokens: number
  readonly maxSequences: number
  /** Number of KV-cache blocks; vLLM keeps one of them as its null block. Default: as many as fit into 1 GiB. */
  readonly blocks?: number
}

export interface BenchServer {
  readonly url: string
  readonly modelDirectory: string
  /** Python interpreter of the venv in which vLLM runs. */
  readonly python: string
  readonly startEngine: (id: EngineId, modelDirectory: string, config: RecipeConfig) => Promise<VllmEngine>
  forgetPrefixes(): Promise<void>
  metrics(): Promise<VllmMetrics>
  stop(): Promise<void>
}

export const blockTokens = 32
/**
 * Upper bound on the tokens that one engine step computes. It keeps long prompts from stopping all decodes for seconds.
 */
export const maxBatchTokens = 512

/**
 * Type of the server's weights and activations: bfloat16 on a CPU that has AVX-512 or instructions for bfloat16, else
 * float32, which is about four times as fast there.
 */
export const serverDtype = /^(flags|Features)\s*:.*\b(avx512f|amx_bf16|bf16)\b/m.test(
  readFileSync('/proc/cpuinfo', 'utf8'),
)
  ? 'bfloat16'
  : 'float32'

export async function startBenchServer({
  contextTokens,
  maxSequences,
  blocks,
}: BenchServerOptions): Promise<BenchServer> {
  const modelDirectory = resolve(process.env.TROUPE_SMOLLM2 ?? smollm2Directory)
  const file = join(modelDirectory, 'config.json')
  if (!existsSync(file)) throw new Error(`${modelDirectory} contains no model; run npx troupe setup smollm2`)
  const { vocab_size: vocabulary } = JSON.parse(readFileSync(file, 'utf8')) as { vocab_size: number }
  const server = await startVllm({
    // torch gets one thread: with two threads on two cores, any other process stalls both at every barrier.
    ...{ modelDirectory, contextTokens, maxSequences, dtype: serverDtype, threads: 1 },
    flags: [
      ...['--block-size', `${blockTokens}`, '--max-num-batched-tokens', `${maxBatchTokens}`],
      ...(blocks === undefined ? [] : ['--num-gpu-blocks-override', `${blocks}`]),
    ],
  })
  const { url } = server
  process.stderr.write(`the vLLM server (${serverDtype}) was ready after ${(server.startedMs / 1000).toFixed(0)} s\n`)
  const renderer = await startRenderer({ modelDirectory }).catch(async thrown => {
    await server.stop()
    throw thrown
  })
  const post = async (path: string) => {
    const reply = await fetch(`${url}${path}`, { method: 'POST', signal: AbortSignal.timeout(60_000) })
    if (!reply.ok) throw new Error(`the vLLM server answered ${path} with HTTP ${reply.status}: ${await reply.text()}`)
  }
  return {
    url,
    modelDirectory,
    python: server.python,
    startEngine: (id, _, { limits }) =>
      startVllmEngine({
        id,
        url,
        expected: {
          ...{ tiedHead: true, vocabulary, contextTokens: limits.contextTokens, trained: false, maxSequences },
          decode: tokens => renderer.decode(tokens),
        },
      }),
    forgetPrefixes: () => post('/reset_prefix_cache'),
    async metrics() {
      const reply = await fetch(`${url}/metrics`, { signal: AbortSignal.timeout(60_000) })
      return vllmMetrics(url, await reply.text())
    },
    async stop() {
      await renderer.close()
      await server.stop()
    },
  }
}
