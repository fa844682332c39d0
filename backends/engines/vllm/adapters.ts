/**
 * Loads LoRA adapters into a running vLLM server: each version beside the earlier ones, under a name of its own.
 *
 * in   a directory that the server can read, its digest        out  the adapter's name for requests
 * Invariant: nothing is paused and no cache is dropped: a request keeps its adapter to its end, and the prefix cache,
 * whose key includes the name, never returns KV of another adapter. The name is derived from the content, so a loaded
 * adapter is not loaded again. The previous version's adapter stays loaded, for requests that were sent before the
 * update; older ones are unloaded.
 * Source: vllm/entrypoints/serve/lora/api_router.py and openai/models/serving.py of 0.32.
 */
import type { ServerHttp } from '../server/http'
import { messageOf } from '../server/reply'
import { serverUpdate } from '../server/update'

const { failed } = serverUpdate('vLLM')

export const loadPath = '/v1/load_lora_adapter'
const unloadPath = '/v1/unload_lora_adapter'
const askMs = 30_000
/** Number of adapters of this engine that stay loaded: that of the latest `load`, and the one before it. */
const kept = 2

/** Manages the adapters on the server. `loadMs`: upper bound on the load of one, in milliseconds. */
export function vllmAdapters(http: ServerHttp, loadMs: number) {
  /**
   * Names of the adapters to keep on the server, at most `kept`; the one whose load was requested last comes last. An
   * adapter that the server had loaded before the request counts, too.
   */
  const loaded: string[] = []

  return {
    /**
     * Loads an adapter; resolves with its name. @throws TroupeError engine.update_failed if the server cannot load it;
     * engine.lost, engine.timeout
     */
    async load(directory: string, digest: string): Promise<string> {
      const name = `troupe-${digest.slice(0, 16)}`
      const reply = await http.post(loadPath, { lora_name: name, lora_path: directory }, loadMs)
      const isThere = reply.status === 400 && reply.text.includes('already been loaded')
      if (reply.status !== 200 && !isThere) {
        const what = `could not load the adapters in ${directory}`
        throw failed(http.url, what, messageOf(reply.text))
      }
      loaded.splice(0, loaded.length, ...loaded.filter(other => other !== name), name)
      // The reply is ignored: an adapter that is already unloaded is not an error.
      for (const old of loaded.splice(0, loaded.length - kept)) await http.post(unloadPath, { lora_name: old }, askMs)
      return name
    },
  }
}
