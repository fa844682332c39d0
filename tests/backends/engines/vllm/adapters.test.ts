/** Adapters on a vLLM server: which requests ask for which, what is probed, what is refused. tests/vllm has a real server. */
import { createHash } from 'node:crypto'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { WeightsUpdate } from '../../../../backends/engines/engine'
import { startVllmEngine, type VllmEngine, type VllmEngineOptions } from '../../../../backends/engines/vllm/vllm'
import { engineId, policyVersion } from '../../../../messages/ids'
import { type FakeVllm, fakeVllm, open, piece, usage, vocabulary, whole } from '../../../support/fakeVllm'
import { refused } from '../../../support/refusal'
import { until } from '../../../support/until'
import { requestOn } from '../contract'

const directory = mkdtempSync(join(tmpdir(), 'troupe-adapters-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

let fake: FakeVllm
let engine: VllmEngine | undefined
beforeEach(async () => {
  fake = await fakeVllm()
})
afterEach(async () => {
  await engine?.close()
  engine = undefined
  await fake.close()
})

const decode = async (tokens: Int32Array) => tokens.join(' ')
const expected: VllmEngineOptions['expected'] = {
  ...{ tiedHead: true, vocabulary, contextTokens: 60, trained: true, adapterRank: 8, decode, maxSequences: 64 },
}
const { adapterRank: _, ...withoutRank } = expected
const start = async (changes: Partial<VllmEngineOptions['expected']> = {}): Promise<VllmEngine> => {
  engine = await startVllmEngine({ id: engineId('vllm-0'), url: fake.url, expected: { ...expected, ...changes } })
  return engine
}
const context = Int32Array.of(1, 2, 3)
/** Version N's adapters are others than those of every other version. */
function updateTo(version: number): WeightsUpdate {
  const folder = join(directory, String(version))
  const bytes = `adapters of ${version}`
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'adapter_model.safetensors'), bytes)
  const digest = createHash('sha256').update(bytes).digest('hex')
  return { version: policyVersion(version), directory: folder, digest, keepKv: false, isAdapter: true }
}
const nameOf = ({ digest }: WeightsUpdate) => `troupe-${digest.slice(0, 16)}`
const asked = (path: string) => fake.asked.filter(each => each.path === path).map(({ body }) => body)
const serverSays = (lora: unknown) => {
  const config = { device_config: { device: 'cpu' }, scheduler_config: { max_num_seqs: 7 }, lora_config: lora }
  fake.override = path =>
    path.startsWith('/server_info') ? { status: 200, body: JSON.stringify({ vllm_config: config }) } : undefined
}

test('a turn is asked of the newest adapters, without a pause; one that runs keeps those that it began with', async () => {
  const started = await start()
  expect(started.capabilities).toMatchObject({ takesAdapters: true, trainable: true })
  const [first, second] = [updateTo(1), updateTo(2)]
  await started.updateWeights(first)
  let goOn = () => {}
  fake.streaming = (reply, body) => {
    open(reply).write(piece([10]))
    goOn = () => void reply.end(piece([11, 12], 'length') + usage)
    fake.streaming = whole
    expect(body.model).toBe(nameOf(first))
  }
  const begun = new Promise<void>(resolve => {
    void started
      .stream({ ...requestOn(context), maxTokens: 3 }, () => resolve())
      .then(done => {
        expect(done.segments).toEqual([{ policyVersion: 1, start: 0, end: 3 }])
        ended = true
      })
  })
  let ended = false
  await begun
  await started.updateWeights(second)
  expect((await started.status()).version).toBe(2)
  const next = await started.generate({ ...requestOn(context), requestId: 'next', maxTokens: 2 })
  expect(next.segments).toEqual([{ policyVersion: 2, start: 0, end: 2 }])
  expect(asked('/v1/completions').at(-1)!.model).toBe(nameOf(second))
  goOn()
  await until(async () => ended)
  const paths = fake.asked.map(({ path }) => path)
  for (const path of ['/pause', '/collective_rpc', '/reset_prefix_cache']) {
    expect(paths.filter(each => each.startsWith(path))).toEqual([])
  }
})

test('adapters that are there already are not loaded again, and only those of two versions stay', async () => {
  const started = await start()
  const [one, two, three] = [updateTo(1), updateTo(2), updateTo(3)]
  for (const update of [one, one, two, three]) await started.updateWeights(update)
  expect(asked('/v1/unload_lora_adapter')).toEqual([{ lora_name: nameOf(one) }])
  await started.updateWeights(two)
  expect(asked('/v1/unload_lora_adapter')).toHaveLength(1)
  const answer = await started.generate(requestOn(context))
  expect(answer.segments[0]!.policyVersion).toBe(2)
  expect(asked('/v1/completions').at(-1)!.model).toBe(nameOf(two))
})

test('what cannot be loaded is said, and turns go on under what was there', async () => {
  const started = await start()
  await started.updateWeights(updateTo(1))
  const bad = { ...updateTo(2), digest: updateTo(1).digest }
  expect(await refused(started.updateWeights(bad))).toMatchObject({ code: 'engine.digest_differs' })
  fake.override = path =>
    path === '/v1/load_lora_adapter' ? { status: 500, body: '{"message":"no LoRA"}' } : undefined
  const error = await refused(started.updateWeights(updateTo(3)))
  expect(error).toMatchObject({ code: 'engine.update_failed', retriable: true })
  expect(error.message).toMatch(/no LoRA/)
  expect((await started.generate(requestOn(context))).segments[0]!.policyVersion).toBe(1)
})

test('merged weights would change the model that adapters belong to: a server of adapters refuses them', async () => {
  const started = await start()
  const merged = { ...updateTo(1), isAdapter: false }
  expect(await refused(started.updateWeights(merged))).toMatchObject({ code: 'engine.no_updates', retriable: false })
  const asItCame = { version: policyVersion(0), directory: '/as/it/is', digest: '', keepKv: false }
  await started.updateWeights(asItCame)
  expect((await started.generate(requestOn(context))).segments[0]!.policyVersion).toBe(0)
  expect(asked('/v1/completions').at(-1)!.model).toBe('m')
})

test('whether a server takes adapters is found out by asking it; without any it gets merged weights', async () => {
  const takes = async () => (await start({ tiedHead: false })).capabilities.takesAdapters
  serverSays({ max_lora_rank: 8 })
  expect(await takes()).toBe(true)
  serverSays({ max_lora_rank: 4 })
  expect(await refused(start())).toMatchObject({ code: 'engine.unfit', hint: expect.stringMatching(/--max-lora-rank/) })
  serverSays(null)
  expect(await takes()).toBe(false)
  fake.override = path =>
    path === '/v1/load_lora_adapter' ? { status: 404, body: '{"detail":"Not Found"}' } : undefined
  expect(await takes()).toBe(false)
  fake.override = path => (path === '/v1/load_lora_adapter' ? { status: 503, body: 'not now' } : undefined)
  expect(await refused(start())).toMatchObject({ code: 'engine.failed', retriable: true })
})

test('a server without development endpoints is trained with adapters, and not without', async () => {
  fake.override = path => (path === '/is_paused' ? { status: 404, body: 'Not Found' } : undefined)
  expect((await start()).capabilities.trainable).toBe(true)
  const whole = await refused(startVllmEngine({ id: engineId('x'), url: fake.url, expected: withoutRank }))
  expect(whole).toMatchObject({ code: 'engine.unfit' })
})
