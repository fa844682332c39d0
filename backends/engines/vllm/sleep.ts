/**
 * Frees the GPU memory of a vLLM server for a while.
 *
 * in   a sleep level, later weights to load        out  the server without its KV cache, at level 2 without its weights
 * Invariant: running requests are kept and compute their KV cache again after the server wakes. A server that cannot
 * fall asleep is told to resume. The scheduler of vLLM stays paused until the weights and the KV cache are back, so no
 * token is sampled from discarded weights.
 * Source: vllm/entrypoints/serve/dev/sleep/api_router.py and v1/engine/core.py of 0.32. On CPUs that version pauses and
 * resumes, and frees nothing.
 */
import type { ServerHttp } from '../server/http'
import { isMissing } from '../server/reply'
import { serverUpdate } from '../server/update'
import { noSleep } from './refusals'
import { resume } from './weights'

const { must } = serverUpdate('vLLM')

/** At level 1 weights move to the host's memory, at level 2 they are discarded. */
export type SleepLevel = 1 | 2

/** Upper bound on a request that pauses, drops the KV cache, or allocates it, in milliseconds. */
const pauseMs = 120_000

/**
 * Puts the server to sleep. `moveMs`: upper bound on the time that weights take to the host's memory. @throws
 * TroupeError engine.no_sleep if the server has no sleep endpoints, engine.update_failed if it cannot be paused or free
 * its memory; engine.lost, engine.timeout
 */
export async function sleepVllm(http: ServerHttp, level: SleepLevel, moveMs: number): Promise<void> {
  if (isMissing(await http.get('/is_sleeping', pauseMs))) throw noSleep(http.url)
  try {
    await must(http, '/pause?mode=keep&clear_cache=false', {}, pauseMs, 'could not be paused')
    await must(http, '/reset_prefix_cache?reset_running_requests=true', {}, pauseMs, 'could not drop its KV cache')
    await must(http, `/sleep?level=${level}&mode=keep`, {}, moveMs, 'could not free its memory')
  } catch (thrown) {
    await resume(http).catch(() => {}) // an error is ignored: that of the sleep matters more
    throw thrown
  }
}

/**
 * Wakes the server. `directory`: weights to load before it samples again; needed after level 2. `loadMs`: upper bound
 * on that, and on the time that weights take from the host's memory.
 */
export async function wakeVllm(http: ServerHttp, directory: string | undefined, loadMs: number): Promise<void> {
  await must(http, '/wake_up?tags=weights', {}, loadMs, 'could not allocate the memory of its weights again')
  if (directory !== undefined) {
    const rpc = { method: 'reload_weights', kwargs: { weights_path: directory } }
    await must(http, '/collective_rpc', rpc, loadMs, `could not load the weights in ${directory}`)
  }
  await must(http, '/wake_up?tags=kv_cache', {}, pauseMs, 'could not allocate its KV cache again')
  await resume(http)
}
