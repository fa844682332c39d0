/**
 * Loads new weights into a running SGLang server, and frees its memory for a while.
 *
 * in   a directory that the server can read, a label
 * out  the server samples from the weights and reports the label
 * Invariant: after an update, and after a release of memory that failed, the server is told to continue, also if the
 * answer to the pause is lost; after a successful release it stays paused until `resumeSglang`. The KV cache is flushed
 * by /flush_cache, which the server refuses while it is busy; a flush as part of the update's request would crash an
 * older server that is not idle (an assertion in srt/managers).
 * Source: docs/advanced_features/sglang_for_rl.md and srt/managers/tokenizer_manager.py of sgl-project/sglang: pause,
 * update, continue. A pause by `abort` returns when nothing runs; by `retract` and `in_place` at once.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { systemEffects } from '../../../runtime/effects'
import type { ServerHttp } from '../server/http'
import { messageOf } from '../server/reply'
import { serverUpdate } from '../server/update'
import { sglangLoads } from './loads'

const { must, failed } = serverUpdate('SGLang')

/**
 * Effect of a pause on running requests. `abort`: ends them; the engine sends them again with their tokens. `retract`:
 * puts them back into the queue and computes their KV cache again. `in_place`: freezes them with their KV cache.
 */
export type SglangPause = 'abort' | 'retract' | 'in_place'

export interface SglangUpdate {
  readonly directory: string
  readonly label: string
  readonly keepKv: boolean
  /** Upper bound on the load of the weights, in milliseconds. */
  readonly loadMs: number
  readonly pause: SglangPause
}

const pauseMs = 120_000
const flushMs = 30_000
const idleMs = 60_000
const againMs = 100

/**
 * Loads new weights. `onLoaded` is called as soon as they are loaded, since the server samples from them even if its KV
 * cache then cannot be flushed.
 * @throws TroupeError engine.update_failed if the server cannot be paused, load the weights, flush its KV cache or
 * continue; engine.lost, engine.timeout
 */
export async function updateSglang(http: ServerHttp, update: SglangUpdate, onLoaded: () => void): Promise<void> {
  try {
    await must(http, '/pause_generation', { mode: update.pause }, pauseMs, 'could not be paused')
    await load(http, update)
    onLoaded()
    if (!update.keepKv) await flush(http)
  } catch (thrown) {
    await continueGeneration(http).catch(() => {}) // an error is ignored: that of the update matters more
    throw thrown
  }
  await continueGeneration(http)
}

async function load(
  http: ServerHttp,
  { directory, label, loadMs }: Pick<SglangUpdate, 'directory' | 'label' | 'loadMs'>,
): Promise<void> {
  const asked = { model_path: directory, abort_all_requests: false, weight_version: label, flush_cache: false }
  await must(http, '/update_weights_from_disk', asked, loadMs, `could not load the weights in ${directory}`)
}

async function flush(http: ServerHttp): Promise<void> {
  const deadline = systemEffects.elapsed() + flushMs
  for (;;) {
    const { status, text } = await http.post('/flush_cache', {}, flushMs)
    if (status === 200) return
    if (systemEffects.elapsed() > deadline)
      throw failed(http.url, 'could not flush the KV cache of older weights', messageOf(text))
    await sleep(againMs)
  }
}

/**
 * Frees the memory that `tags` names (kv_cache, weights). The server stays paused, and running requests end. @throws
 * TroupeError engine.update_failed, after which the server is told to continue
 */
export async function releaseSglang(http: ServerHttp, tags: readonly string[]): Promise<void> {
  try {
    await must(http, '/pause_generation', { mode: 'abort' }, pauseMs, 'could not be paused')
    await idle(http)
    await must(http, '/release_memory_occupation', { tags }, pauseMs, 'could not free its memory')
  } catch (thrown) {
    await continueGeneration(http).catch(() => {})
    throw thrown
  }
}

/**
 * Allocates the freed memory again, loads `weights` into it if they are given, and lets the server continue. If `tags`
 * names the weights, their memory holds no weights after the allocation, so `weights` must be given.
 */
export async function resumeSglang(
  http: ServerHttp,
  tags: readonly string[],
  weights: Pick<SglangUpdate, 'directory' | 'label' | 'loadMs'> | undefined,
): Promise<void> {
  await must(http, '/resume_memory_occupation', { tags }, pauseMs, 'could not allocate its memory again')
  if (weights !== undefined) {
    await load(http, weights)
    await flush(http)
  }
  await continueGeneration(http)
}

/** Waits until the server is idle: two polls in a row without running or waiting requests, since its counts lag. */
async function idle(http: ServerHttp): Promise<void> {
  const deadline = systemEffects.elapsed() + idleMs
  for (let quiet = 0; quiet < 2; ) {
    const { running, waiting } = await sglangLoads(http)
    quiet = running + waiting === 0 ? quiet + 1 : 0
    if (systemEffects.elapsed() > deadline)
      throw failed(http.url, 'is not idle', `${running} requests run, ${waiting} wait`)
    if (quiet < 2) await sleep(againMs)
  }
}

/**
 * Lets a paused server continue; has no effect on any other. @throws TroupeError engine.update_failed if the server
 * refuses
 */
export const continueGeneration = (http: ServerHttp): Promise<void> =>
  must(http, '/continue_generation', {}, pauseMs, 'could not continue after a pause')
