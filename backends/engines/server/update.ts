/**
 * Requests that change a running server (pauses, new weights, freed memory), each of which must succeed.
 *
 * in   the kind of server        out  `must`, which sends a request; `failed`, which makes the error if one fails
 * Source of the calls: vllm/weights.ts, sglang/weights.ts.
 */
import { TroupeError } from '../../../runtime/errors'
import type { ServerHttp } from './http'
import { messageOf } from './reply'

export function serverUpdate(kind: 'vLLM' | 'SGLang') {
  const failed = (url: string, what: string, said: string): TroupeError =>
    new TroupeError('engine.update_failed', {
      boundary: 'engine',
      retriable: true,
      message: `the ${kind} server at ${url} ${what}: ${said}`,
      hint: "see the server's log; new weights need a directory that the server can read, with the same model architecture",
    })
  return {
    failed,
    /**
     * Sends a request that must be answered with 200. `what`: the failure in words.
     * @throws TroupeError engine.update_failed for another status; engine.lost and engine.timeout if no answer comes
     */
    async must(http: ServerHttp, path: string, body: object, timeoutMs: number, what: string): Promise<void> {
      const reply = await http.post(path, body, timeoutMs)
      if (reply.status !== 200) throw failed(http.url, what, messageOf(reply.text))
    },
  }
}
