/**
 * Reads the load of an SGLang server, summed over its data-parallel ranks.
 *
 * in   GET /v1/loads, or /get_load of older servers        out  running and waiting requests, KV cache in tokens
 * Invariant: counts are whole numbers of at least 0; anything else is `engine.failed`. The server publishes them every
 * few iterations, so they lag: to be sure that the server is idle, ask twice.
 * Source: srt/entrypoints/v1_loads.py and srt/managers/load_snapshot.py of sgl-project/sglang.
 */
import type { ServerHttp } from '../server/http'
import { garbage, objectOf } from '../server/reply'

export interface SglangLoads {
  readonly running: number
  readonly waiting: number
  /**
   * Number of tokens in the KV cache that running requests refer to; tokens that are only cached do not count. A server
   * that has only /get_load adds the tokens of waiting requests.
   */
  readonly usedTokens: number
  /** Size of the KV cache in tokens; 0 if the server does not report it. */
  readonly kvTokens: number
  /** Upper bound on sequences that run at once; 0 if the server does not report it. */
  readonly maxSequences: number
}

const askMs = 30_000
const path = '/v1/loads?include=core'

export async function sglangLoads(http: ServerHttp): Promise<SglangLoads> {
  const reply = await http.get(path, askMs)
  if (reply.status === 404) return olderLoads(http)
  const { loads } = objectOf(http.url, path, reply)
  if (!Array.isArray(loads) || loads.length === 0) throw garbage(http.url, `${path} returned no loads`)
  const sum = (name: string) => total(http.url, path, loads, name)
  return {
    running: sum('num_running_reqs'),
    waiting: sum('num_waiting_reqs'),
    usedTokens: sum('num_used_tokens'),
    kvTokens: sum('max_total_num_tokens'),
    maxSequences: sum('max_running_requests'),
  }
}

/** Reads /get_load: a list of {dp_rank, num_reqs, num_waiting_reqs, num_tokens}; num_reqs includes waiting requests. */
async function olderLoads(http: ServerHttp): Promise<SglangLoads> {
  const reply = await http.get('/get_load', askMs)
  let loads: unknown
  try {
    loads = reply.status === 200 ? JSON.parse(reply.text) : undefined
  } catch {
    // not JSON: the error is thrown below
  }
  if (!Array.isArray(loads) || loads.length === 0)
    throw garbage(http.url, 'neither /v1/loads nor /get_load reports the load of the server')
  const sum = (name: string) => total(http.url, '/get_load', loads, name)
  const waiting = sum('num_waiting_reqs')
  return {
    running: Math.max(0, sum('num_reqs') - waiting),
    waiting,
    usedTokens: sum('num_tokens'),
    kvTokens: 0,
    maxSequences: 0,
  }
}

function total(url: string, where: string, loads: readonly unknown[], name: string): number {
  return loads.reduce<number>((sum, load) => {
    const value = (load as Readonly<Record<string, unknown>> | null)?.[name]
    if (typeof value !== 'number' || !Number.isInteger(value) || value < 0) {
      throw garbage(url, `${where} says ${name} is ${JSON.stringify(value)}, expected a whole number of at least 0`)
    }
    return sum + value
  }, 0)
}
