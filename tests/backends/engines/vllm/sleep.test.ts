/**
 * Sleep and wake of a vLLM server: which requests are sent, in which order, and what happens when one fails. The real
 * server falls asleep in tests/vllm/train.test.ts.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startVllmEngine, type VllmEngine } from '../../../../backends/engines/vllm/vllm'
import { engineId, policyVersion } from '../../../../messages/ids'
import { type FakeVllm, fakeVllm, vocabulary } from '../../../support/fakeVllm'
import { requestOn } from '../contract'

let fake: FakeVllm
let engine: VllmEngine
const folder = mkdtempSync(join(tmpdir(), 'troupe-vllm-sleep-'))
writeFileSync(join(folder, 'model.safetensors'), 'weights')
afterAll(() => rmSync(folder, { recursive: true, force: true }))
afterEach(async () => {
  await engine.close()
  await fake.close()
})

const decode = async (tokens: Int32Array) => tokens.join(' ')
const expected = { tiedHead: false, vocabulary, contextTokens: 60, trained: true, decode, maxSequences: 64 }
async function started(sleepLevel: 1 | 2, more: { readonly weightUpdateMs?: number } = {}) {
  fake = await fakeVllm()
  engine = await startVllmEngine({ id: engineId('vllm-0'), url: fake.url, expected, sleepLevel, ...more })
  fake.asked.length = 0
  return engine
}
const update = (version: number) => ({ version: policyVersion(version), directory: folder, digest: '', keepKv: false })
const asked = () => fake.asked.splice(0).flatMap(({ path }) => (path === '/health' ? [] : [path]))
const reload = () => fake.asked.find(({ path }) => path === '/collective_rpc')?.body
const fallAsleep = (level: number) => [
  ...['/is_sleeping', '/pause?mode=keep&clear_cache=false', '/reset_prefix_cache?reset_running_requests=true'],
  `/sleep?level=${level}&mode=keep`,
]

test('running requests drop their KV before the memory goes, and new weights are there before the server samples again', async () => {
  const one = await started(2)
  await one.sleep!()
  await one.sleep!() // it sleeps already
  expect(asked()).toEqual(fallAsleep(2))
  await one.wake!(update(3))
  expect(reload()).toEqual({ method: 'reload_weights', kwargs: { weights_path: folder } })
  expect(asked()).toEqual(['/wake_up?tags=weights', '/collective_rpc', '/wake_up?tags=kv_cache', '/resume'])
  const { segments } = await one.generate(requestOn(Int32Array.of(1, 2, 3), { maxTokens: 2 }))
  expect(segments).toEqual([{ policyVersion: 3, start: 0, end: 2 }])
})

test('level 1 has its weights on the host; level 2 loads those of the last update, and fails where there were none', async () => {
  const kept = await started(1)
  await kept.sleep!()
  asked()
  await kept.wake!()
  expect(asked()).toEqual(['/wake_up?tags=weights', '/wake_up?tags=kv_cache', '/resume'])
  await kept.close()
  await fake.close()
  const discarded = await started(2)
  await discarded.sleep!()
  await expect(discarded.wake!()).rejects.toMatchObject({ code: 'engine.no_weights' })
  await discarded.wake!(update(1))
  await discarded.sleep!()
  asked()
  await discarded.wake!()
  expect(asked()).toContain('/collective_rpc')
})

test('a server that is awake loads the weights that it is woken with', async () => {
  const one = await started(1)
  await one.wake!(update(2))
  expect(asked()).toContain('/collective_rpc')
  const { segments } = await one.generate(requestOn(Int32Array.of(1, 2, 3), { maxTokens: 1 }))
  expect(segments).toEqual([{ policyVersion: 2, start: 0, end: 1 }])
})

test('a turn that is asked while the server sleeps begins when it has woken', async () => {
  const one = await started(1)
  await one.sleep!()
  let answered = false
  const turn = one.generate(requestOn(Int32Array.of(1), { maxTokens: 2 })).then(() => {
    answered = true
  })
  await one.status()
  expect(answered).toBe(false)
  await one.wake!()
  await turn
})

test.each(['/sleep?level=1&mode=keep', '/wake_up?tags=weights'])(
  'a server has as long to move its weights as to load new ones, which follows from the recipe: %s',
  async slow => {
    const one = await started(1, { weightUpdateMs: 300 })
    if (slow.startsWith('/wake')) await one.sleep!()
    fake.override = path => (path === slow ? new Promise(() => {}) : undefined)
    const began = performance.now()
    await expect(slow.startsWith('/wake') ? one.wake!() : one.sleep!()).rejects.toMatchObject({
      code: 'engine.timeout',
    })
    expect(performance.now() - began).toBeLessThan(20_000)
  },
)

test('a server that cannot sleep says so; one that fails on the way is told to resume', async () => {
  const one = await started(1)
  fake.override = path => (path === '/is_sleeping' ? { status: 404, body: '{}' } : undefined)
  await expect(one.sleep!()).rejects.toMatchObject({ code: 'engine.no_sleep', retriable: false })
  fake.override = path =>
    path.startsWith('/sleep') ? { status: 500, body: '{"error": {"message": "no"}}' } : undefined
  asked()
  await expect(one.sleep!()).rejects.toMatchObject({ code: 'engine.update_failed' })
  expect(asked().at(-1)).toBe('/resume')
  await one.generate(requestOn(Int32Array.of(1), { maxTokens: 2 }))
})
