/**
 * Adapters on a running vLLM server: a version's lie beside those of the versions before it, under a name of their own.
 *
 * in   a directory that the server can read, its digest        out  the name that requests give
 * Invariant: nothing is paused and nothing forgotten: a request keeps the adapters that it was asked for to its end, and the
 * prefix cache, which counts the name in, never gives KV of other adapters. The name is of the content, so adapters that are
 * there already are not loaded again. Those of the version before stay, for requests that are on their way; older ones go.
 * Source: vllm/entrypoints/serve/lora/api_router.py and openai/models/serving.py of 0.32.
 */
import type { ServerHttp } from '../server/http'
import { messageOf } from '../server/reply'
import { serverUpdate } from '../server/update'

const { failed } = serverUpdate('vLLM')

export const loadPath = '/v1/load_lora_adapter'
const unloadPath = '/v1/unload_lora_adapter'
const loadMs = 600_000
const askMs = 30_000
/** The newest, and the one before. */
const kept = 2

export function vllmAdapters(http: ServerHttp) {
  /** Loaded from here, oldest first. */
  const loaded: string[] = []

  return {
    /** @throws TroupeError engine.update_failed where the server cannot load them; engine.lost, engine.timeout */
    async load(directory: string, digest: string): Promise<string> {
      const name = `troupe-${digest.slice(0, 16)}`
      const reply = await http.post(loadPath, { lora_name: name, lora_path: directory }, loadMs)
      const said = messageOf(reply.text)
      const isThere = reply.status === 400 && said.includes('already been loaded')
      if (reply.status !== 200 && !isThere) {
        throw failed(http.url, `could not load the adapters in ${directory} (it needs --enable-lora)`, said)
      }
      loaded.splice(0, loaded.length, ...loaded.filter(other => other !== name), name)
      // One that is gone already is no fault.
      for (const old of loaded.splice(0, loaded.length - kept)) await http.post(unloadPath, { lora_name: old }, askMs)
      return name
    },
  }
}
