/**
 * Gives a running vLLM server new weights, between two of its iterations.
 *
 * in   a directory that the server can read, a version        out  the server samples under them
 * Invariant: running requests are frozen, not ended, while the weights change. The server is told to resume whatever happens
 * here, also if the answer to the pause is lost. Unless KV is kept, frozen requests compute theirs anew and the prefix cache
 * is empty.
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
}

const pauseMs = 60_000
const loadMs = 600_000
const askMs = 30_000

/**
 * `onLoaded` is called when the weights are in and all tokens of the older ones have arrived, before the server resumes.
 * @throws TroupeError engine.update_failed if the server cannot load them; engine.lost, engine.timeout
 */
export async function updateVllm(http: ServerHttp, update: VllmUpdate, onLoaded: () => void): Promise<void> {
  const { version, directory, keepKv } = update
  try {
    await must(http, '/pause?mode=keep&clear_cache=false', {}, pauseMs, 'could not be paused')
    const rpc = { method: 'reload_weights', kwargs: { weights_path: directory } }
    await must(http, '/collective_rpc', rpc, loadMs, `could not load the weights in ${directory}`)
    // The pause ended when the last token of the older weights was on its way. After one more round trip and a turn of this
    // process's event loop, it has been read.
    await http.get('/is_paused', askMs)
    await setImmediate()
    await setImmediate()
    onLoaded()
    if (!keepKv) {
      const path = '/reset_prefix_cache?reset_running_requests=true'
      const { success } = objectOf(http.url, path, await http.post(path, {}, pauseMs))
      if (success !== true) throw failed(http.url, 'could not forget the KV of older weights', 'success is not true')
    }
    // The server's own label, for people who look at it; servers without the endpoint take new weights all the same.
    await http.post('/update_weight_version', { new_version: String(version) }, askMs)
  } catch (thrown) {
    await resume(http).catch(() => {}) // the reason why the weights did not come is worth more
    throw thrown
  }
  await resume(http)
}

/** Has no effect on a server that is not paused. @throws TroupeError engine.update_failed */
export const resume = (http: ServerHttp): Promise<void> =>
  must(http, '/resume', {}, pauseMs, 'could not go on after a pause')
