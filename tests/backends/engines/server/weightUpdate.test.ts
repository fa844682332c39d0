/** Servers have the time that the recipe gives a load of new weights. */
import type { ServerHttp } from '../../../../backends/engines/server/http'
import { resumeSglang, updateSglang } from '../../../../backends/engines/sglang/weights'
import { vllmAdapters } from '../../../../backends/engines/vllm/adapters'
import { updateVllm } from '../../../../backends/engines/vllm/weights'
import { policyVersion } from '../../../../messages/ids'

/** A server that agrees to everything; notes the time that each path was given. */
function agreeing() {
  const given = new Map<string, number>()
  const post = async (path: string, _body: object, ms: number) => {
    given.set(path.split('?')[0]!, ms)
    return { status: 200, text: '{"success": true}' }
  }
  return {
    given,
    http: { url: 'http://s', post, get: async () => ({ status: 200, text: '{}' }) } as unknown as ServerHttp,
  }
}
const loadMs = 1_234_567

test('vLLM: whole weights and adapters', async () => {
  const { given, http } = agreeing()
  await updateVllm(http, { version: policyVersion(1), directory: '/w', keepKv: true, loadMs }, () => {})
  await vllmAdapters(http, loadMs).load('/a', 'd'.repeat(64))
  expect([given.get('/collective_rpc'), given.get('/v1/load_lora_adapter')]).toEqual([loadMs, loadMs])
})

test('SGLang: an update, and a wake that loads weights', async () => {
  for (const load of [
    (http: ServerHttp) =>
      updateSglang(http, { directory: '/w', label: '1', keepKv: true, pause: 'abort', loadMs }, () => {}),
    (http: ServerHttp) => resumeSglang(http, ['weights'], { directory: '/w', label: '1', loadMs }),
  ]) {
    const { given, http } = agreeing()
    await load(http)
    expect(given.get('/update_weights_from_disk')).toBe(loadMs)
  }
})
