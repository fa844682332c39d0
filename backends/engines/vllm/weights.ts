/**
 * Loads new weights into a running vLLM server, between two of its iterations.
 *
 * in   a directory that the server can read, a version        out  the server samples from them
 * Invariant: running requests are frozen, not ended, while the weights change. The server is told to resume after
 * every update, failed ones included, also if the answer to the pause is lost. Unless KV is kept, the KV cache of
 * frozen requests is computed again and the prefix cache is emptied.
 * Source: vllm/entrypoints/rl/online/api_router.py and serve/dev of 0.32. `clear_cache` of /pause does nothing when
 * requests are kept, so the cache is reset by its own endpoint, after the weights have changed.
 */
import { setImmediate } from 'node:timers/promises'
import type { PolicyVersion } from '../../../messages/ids'
import type { ServerHttp } from '../server/http'
import { objectOf } from '../server/reply'
import { serverUpdate } from '../server/update'

const { must, failed } = serverUpdate('vLLM')

export interface VllmUpdate {
  readonly version: PolicyVersion
  readonly directory: string
  readonly keepKv: boolean
  /** Upper bound on the load of the weights, in milliseconds. */
  readonly loadMs: number
}

const pauseMs = 60_000
const askMs = 30_000

/**
 * Loads new weights. `onLoaded` is called when they are loaded and all tokens of the older ones have arrived, before
 * the KV cache is reset and the server resumes. @throws TroupeError engine.update_failed if the server cannot be
 * paused, load the weights, reset its cache or resume; engine.lost, engine.timeout, engine.failed
 */
export async function updateVllm(http: ServerHttp, update: VllmUpdate, onLoaded: () => void): Promise<void> {
  const { version, directory, keepKv, loadMs } = update
  try {
    await must(http, '/pause?mode=keep&clear_cache=false', {}, pauseMs, 'could not be paused')
    const rpc = { method: 'reload_weights', kwargs: { weights_path: directory } }
    await must(http, '/collective_rpc', rpc, loadMs, `could not load the weights in ${directory}`)
    // When the pause is confirmed, the last tokens of the older weights may still be on their way. After one more round
    // trip and two turns of this process's event loop they have been read.
    await http.get('/is_paused', askMs)
    await setImmediate()
    await setImmediate()
    onLoaded()
    if (!keepKv) {
      const path = '/reset_prefix_cache?reset_running_requests=true'
      const { success } = objectOf(http.url, path, await http.post(path, {}, pauseMs))
      if (success !== true)
        throw failed(
          http.url,
          'could not reset the prefix cache of older weights',
          "the field 'success' of the answer is not true",
        )
    }
    // Sets the version label that the server shows to its users; the reply is ignored, since not every server has this
    // endpoint.
    await http.post('/update_weight_version', { new_version: String(version) }, askMs)
  } catch (thrown) {
    await resume(http).catch(() => {}) // an error is ignored: that of the update matters more
    throw thrown
  }
  await resume(http)
}

/**
 * Lets a paused server continue; has no effect on any other. @throws TroupeError engine.update_failed if the server
 * refuses
 */
export const resume = (http: ServerHttp): Promise<void> =>
  must(http, '/resume', {}, pauseMs, 'could not resume after a pause')
