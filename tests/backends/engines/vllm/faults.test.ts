/**
 * What a real vLLM server does not do when asked: garbage, silence, half an answer. The server is
 * support/fakeVllm.ts; tests/vllm runs against a real one.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import type { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { GenerationLost } from '../../../../backends/engines/engine'
import { vllmMetrics } from '../../../../backends/engines/vllm/metrics'
import { startVllmEngine, type VllmEngine, type VllmEngineOptions } from '../../../../backends/engines/vllm/vllm'
import { engineId, policyVersion } from '../../../../messages/ids'
import {
  event,
  type FakeVllm,
  fakeVllm,
  metricsText,
  open,
  piece,
  usage,
  vocabulary,
  whole,
} from '../../../support/fakeVllm'
import { refused } from '../../../support/refusal'
import { plainSampling, requestOn } from '../contract'

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
const expected = { tiedHead: false, vocabulary, contextTokens: 60, trained: true, decode, maxSequences: 64 }
const start = async (changes: Partial<VllmEngineOptions> = {}): Promise<VllmEngine> => {
  engine = await startVllmEngine({ id: engineId('vllm-0'), url: fake.url, expected, ...changes })
  return engine
}
const context = Int32Array.of(1, 2, 3)

test('every sampling field is said, and the answer is taken as it came', async () => {
  const started = await start()
  expect(started.capabilities).toMatchObject({ kvTokens: 46_592, blockTokens: 128, maxSequences: 7, prioritySign: -1 })
  const answer = await started.generate(requestOn(context, { maxTokens: 5, priority: 9, resumedTokens: 1 }))
  expect(answer).toMatchObject({ finish: 'length', cachedTokens: 2, text: '3 10 11 12 13 14' })
  expect([...answer.tokens]).toEqual([10, 11, 12, 13, 14])
  const { body } = fake.asked.at(-1)!
  expect(body).toMatchObject({ priority: 9, ignore_eos: true, max_tokens: 5, prompt: [1, 2, 3] })
  expect(body).not.toHaveProperty('seed') // a seeded request can end a CPU server
})

const cached = (count: unknown) => event({ choices: [], usage: { prompt_tokens_details: { cached_tokens: count } } })

test('what is no answer of vLLM is `engine.failed`, and says what came', async () => {
  const started = await start()
  const garbage: readonly (readonly [string, RegExp])[] = [
    ['data: <html>\n\n', /no JSON.*<html>/],
    ['data: 7\n\n', /no object/],
    [piece([10, 11], null, [-1]), /2 tokens with 1 logprobs/],
    [piece([10], null, [null]), /invalid logprobs.*: \[null\]/],
    [piece([10], null, [0.5]), /invalid logprobs/],
    [piece([vocabulary]), /expected token ids from 0 to /],
    [piece([1.5]), /expected token ids from 0 to /],
    [piece([10], 'whatever'), /ended a generation with 'whatever'/],
    [event({ error: { message: 'out of cheese' } }), /out of cheese/],
    ...['7', 1.5, -1, 2 ** 60].map(
      count => [cached(count), new RegExp(`cached_tokens is ${JSON.stringify(count)}`)] as const,
    ),
    ...['7', -1, {}].map(ms => [event({ choices: [], metrics: { queue_time_ms: ms } }), /queue_time_ms is/] as const),
    [event('[DONE]'), /ends before its generation does/],
  ]
  for (const [said, pattern] of garbage) {
    fake.streaming = reply => void open(reply).end(said)
    const error = await refused(started.generate(requestOn(context)))
    expect(error).toMatchObject({ code: 'engine.failed', boundary: 'engine' })
    expect(error.message).toMatch(pattern)
  }
  fake.streaming = whole
  expect((await started.generate(requestOn(context))).tokens).toHaveLength(24)
})

test('tokens that had come before a failure are in it, with the version of each', async () => {
  const started = await start()
  await started.updateWeights({ version: policyVersion(4), directory: modelFolder(), digest: '', keepKv: false })
  fake.streaming = reply => void open(reply).end(piece([10]) + piece([11, 12]) + event('nonsense'))
  const error = await refused(started.generate(requestOn(context)))
  expect(error).toBeInstanceOf(GenerationLost)
  const { partial } = error as GenerationLost
  expect([...partial.tokens]).toEqual([10, 11, 12])
  expect(partial.logprobs).toHaveLength(3)
  expect(partial.segments).toEqual([{ policyVersion: 4, start: 0, end: 3 }])
})

test('a server that ends a request on its own has failed: what it gave is kept, and nobody counts it as asked for', async () => {
  const started = await start()
  for (const given of [[], [10, 11]]) {
    fake.streaming = reply => void open(reply).end(piece(given, 'abort') + usage + event('[DONE]'))
    const error = await refused(started.generate(requestOn(context)))
    expect(error).toMatchObject({ code: 'engine.failed', retriable: true })
    expect(error.message).toMatch(/ended the request, although this process did not abort it/)
    expect(error instanceof GenerationLost ? [...error.partial.tokens] : []).toEqual(given)
  }
})

test('an answer that is not what was asked for is `engine.failed`, and nothing of it is kept', async () => {
  const started = await start()
  const asked = { maxTokens: 4, sampling: { ...plainSampling, stopTokens: [2] } }
  const answers: readonly (readonly [string, RegExp])[] = [
    [piece([5, 6, 7, 8, 9], 'length'), /more than 4 tokens/],
    [piece([5, 6, 7, 8], 'length') + piece([9]), /more than 4 tokens/],
    [piece([5, 2], 'stop') + piece([9]), /continues after stop token 2/],
    [piece([5]) + piece([2, 9], 'stop'), /continues after stop token 2/],
    [piece([5, 6], 'stop'), /says 'stop', but its last token, 6, is not a stop token/],
    [piece([], 'stop'), /last token, none, is not a stop token/],
    [piece([5, 6], 'length'), /says 'length' after 2 of 4 tokens/],
    [piece([5, 2], 'stop') + event({ error: { message: 'after all' } }), /after all/],
  ]
  for (const [said, pattern] of answers) {
    fake.streaming = reply => void open(reply).end(said + usage + event('[DONE]'))
    const error = await refused(started.generate(requestOn(context, asked)))
    expect(error).toMatchObject({ code: 'engine.failed', retriable: true, message: expect.stringMatching(pattern) })
    expect(error).not.toBeInstanceOf(GenerationLost)
  }
  fake.streaming = reply => void open(reply).end(piece([5, 6, 7, 2], 'length') + usage + event('[DONE]'))
  expect(await started.generate(requestOn(context, asked))).toMatchObject({ finish: 'stop', text: '5 6 7 2' })
  // The context has room for two more.
  const long = Int32Array.from({ length: 62 }, () => 1)
  fake.streaming = reply => void open(reply).end(piece([5, 6], 'length') + event('[DONE]'))
  expect(await started.generate(requestOn(long, asked))).toMatchObject({ finish: 'length' })
})

test('a turn ends with [DONE]: the connection is used again where the server ends there too, and dropped where it does not', async () => {
  const started = await start()
  const answer = piece([10], 'length').replace('{', '{"error":null,') + event('[DONE]')
  const sockets: unknown[] = []
  const closed = new Promise<void>(resolve => {
    fake.streaming = reply => {
      sockets.push(reply.socket)
      open(reply)
      if (sockets.length < 3) reply.write(answer.slice(0, -3)) // it ends a little later, in the middle of the line
      if (sockets.length < 3) setTimeout(() => reply.end(answer.slice(-3)), 20)
      else reply.write(answer)
      if (sockets.length === 3) reply.once('close', resolve)
    }
  })
  for (let turn = 0; turn < 3; turn++) {
    expect(await started.generate(requestOn(context, { maxTokens: 1 }))).toMatchObject({ finish: 'length' })
    await new Promise(resolve => setTimeout(resolve, 20))
  }
  expect(new Set(sockets).size).toBe(1)
  await closed
})

test('a connection that is reset in the middle of an answer is not asked again, though it was used before', async () => {
  const started = await start()
  let asked = 0
  fake.streaming = (reply, body) => {
    if (++asked === 1) return whole(reply, body)
    open(reply).write(piece([10]))
    setTimeout(() => (reply.socket as Socket).resetAndDestroy(), 30)
  }
  await started.generate(requestOn(context))
  const error = await refused(started.generate(requestOn(context)))
  expect(error).toBeInstanceOf(GenerationLost)
  await sleep(100)
  expect(asked).toBe(2)
})

test('a server that begins and falls silent is given up after its deadline, one that never begins too', async () => {
  const started = await start({ stallMs: 150, firstTokenMs: 300 })
  fake.streaming = reply => void open(reply).write(piece([10]))
  const stalled = await refused(started.generate(requestOn(context)))
  expect(stalled).toMatchObject({ code: 'engine.timeout', retriable: true })
  expect(stalled.message).toMatch(/no token from .* for 150 ms/)
  fake.streaming = () => {}
  const silent = await refused(started.generate(requestOn(context)))
  expect(silent).toMatchObject({ code: 'engine.timeout', retriable: true })
})

test('a server that has enough to do is asked again until it takes the turn, and that is no failure of it', async () => {
  const started = await start()
  let refusals = 2
  fake.streaming = (reply, body) => {
    if (refusals-- > 0) return void reply.writeHead(429, { 'retry-after': '0' }).end('{"error":"queue full"}')
    whole(reply, body)
  }
  fake.asked.length = 0
  expect(await started.generate(requestOn(context, { maxTokens: 5 }))).toMatchObject({ finish: 'length' })
  expect(fake.asked.filter(({ body }) => body.stream)).toHaveLength(3)

  fake.streaming = reply => void reply.writeHead(429).end('{"error":"queue full"}')
  const aborter = new AbortController()
  const ended = started.generate(requestOn(context), aborter.signal)
  setTimeout(() => aborter.abort(), 50)
  expect(await ended).toMatchObject({ finish: 'aborted' })
})

test('a server that never takes a turn has failed when a first token is overdue', async () => {
  const started = await start({ firstTokenMs: 250 })
  fake.streaming = reply => void reply.writeHead(429).end('{"error":"queue full"}')
  const error = await refused(started.generate(requestOn(context)))
  expect(error).toMatchObject({ code: 'engine.failed', retriable: true })
  expect(error.message).toMatch(/says 429: queue full/)
})

test('an abort while nothing comes resolves at once with nothing', async () => {
  const started = await start()
  fake.streaming = () => {}
  const aborter = new AbortController()
  const answer = started.generate(requestOn(context), aborter.signal)
  setTimeout(() => aborter.abort(), 50)
  expect(await answer).toMatchObject({ finish: 'aborted', text: '', segments: [] })
})

test('a connection that breaks off is `engine.failed` while the server lives, `engine.lost` when it says that it is dead', async () => {
  const started = await start({ health: { everyMs: 60_000 } })
  fake.streaming = reply => {
    open(reply).write(piece([10]))
    setTimeout(() => reply.destroy(), 20)
  }
  const broken = await refused(started.generate(requestOn(context)))
  expect(broken.code).toBe('engine.failed')
  expect(broken.message).toMatch(/broke off, but the server is alive/)
  fake.override = path => (path === '/health' ? { status: 503, body: '' } : undefined)
  fake.streaming = reply => void reply.writeHead(500).end('{"error":{"message":"EngineDeadError"}}')
  expect(await refused(started.generate(requestOn(context)))).toMatchObject({ code: 'engine.lost', retriable: true })
  expect((await started.lost).message).toMatch(/503/)
  expect((await refused(started.generate(requestOn(context)))).code).toBe('engine.lost')
})

test('a server that dies while nobody asks is missed, and what runs is told', async () => {
  const started = await start({ health: { everyMs: 50 } })
  fake.streaming = reply => void open(reply).write(piece([10]))
  const running = refused(started.generate(requestOn(context)))
  await new Promise(resolve => setTimeout(resolve, 100))
  await fake.close()
  expect((await running).code).toBe('engine.lost')
  expect((await started.lost).message).toContain(fake.url)
  fake = await fakeVllm()
})

test('new weights come between a pause and a resume, and the server goes on when they cannot be loaded', async () => {
  const started = await start()
  const directory = modelFolder()
  const update = { version: policyVersion(1), directory, digest: '', keepKv: false }
  const paths = () => fake.asked.map(({ path }) => path.replace(/\?.*/, '')).filter(path => path !== '/health')
  fake.asked.length = 0
  await started.updateWeights(update)
  const sequence = [
    '/pause',
    '/collective_rpc',
    '/is_paused',
    '/reset_prefix_cache',
    '/update_weight_version',
    '/resume',
  ]
  expect(paths()).toEqual(sequence)
  expect(fake.asked[1]!.body).toEqual({ method: 'reload_weights', kwargs: { weights_path: directory } })
  fake.asked.length = 0
  await started.updateWeights({ ...update, version: policyVersion(2), keepKv: true })
  expect(paths()).toEqual(sequence.filter(path => path !== '/reset_prefix_cache'))
  fake.override = path =>
    path === '/collective_rpc' ? { status: 500, body: '{"error":{"message":"shape mismatch"}}' } : undefined
  const failed = await refused(started.updateWeights({ ...update, version: policyVersion(3) }))
  expect(failed).toMatchObject({ code: 'engine.update_failed', retriable: true })
  expect(failed.message).toContain('shape mismatch')
  expect(paths().at(-1)).toBe('/resume')
  expect((await started.generate(requestOn(context))).segments[0]!.policyVersion).toBe(2)
})

test('the server goes on though the answer to its pause is lost, or the weights and the resume fail', async () => {
  const started = await start()
  const update = { version: policyVersion(1), directory: modelFolder(), digest: '', keepKv: false }
  fake.override = path => {
    if (!path.startsWith('/pause')) return undefined
    fake.paused = true
    return { status: 502, body: 'a gateway lost it' }
  }
  const error = await refused(started.updateWeights(update))
  expect(error).toMatchObject({ code: 'engine.update_failed', message: expect.stringMatching(/could not be paused/) })
  expect(fake.paused).toBe(false)
  fake.override = path => (/rpc|resume/.test(path) ? { status: 500, body: `no ${path}` } : undefined)
  expect((await refused(started.updateWeights(update))).message).toMatch(
    /could not load the weights.*no \/collective_rpc/,
  )
  fake.override = () => undefined
  await started.updateWeights(update)
  expect(await started.generate(requestOn(context))).toMatchObject({ finish: 'length' })
})

test('a server that was left paused goes on for the run that trains it, and is refused to one that does not', async () => {
  fake.paused = true
  const error = await refused(start({ expected: { ...expected, trained: false } }))
  expect(error).toMatchObject({ code: 'engine.failed', retriable: true, message: expect.stringMatching(/is paused/) })
  expect(fake.paused).toBe(true)
  const started = await start()
  expect(started.traits.wasPaused).toBe(true)
  expect(await started.generate(requestOn(context))).toMatchObject({ finish: 'length' })
})

test('a server or a proxy that drops ids or logprobs of a turn is unfit, one that refuses a turn too', async () => {
  const bare = { finish_reason: 'length', text: 'x' }
  for (const choice of [bare, { ...bare, token_ids: [1] }, { ...bare, logprobs: { token_logprobs: [-1] } }]) {
    fake.streaming = reply => void open(reply).end(event({ choices: [choice] }) + usage + event('[DONE]'))
    const error = await refused(start())
    expect(error).toMatchObject({
      code: 'engine.unfit',
      retriable: false,
      message: expect.stringMatching(/no token_ids/),
    })
  }
  fake.streaming = reply => void reply.writeHead(400).end('{"error":{"message":"ignore_eos: extra field"}}')
  const error = await refused(start())
  expect(error).toMatchObject({ code: 'engine.unfit', message: expect.stringMatching(/refuses a turn: ignore_eos/) })
  fake.streaming = reply => void reply.writeHead(503).end('not now')
  expect(await refused(start())).toMatchObject({ code: 'engine.failed', retriable: true })
})

test.each([
  [{ data_parallel_size: 4 }, 28],
  [{ data_parallel_size: 4, data_parallel_size_local: 2, data_parallel_hybrid_lb: true }, 14],
  [{ data_parallel_size: 4, data_parallel_size_local: 1, data_parallel_external_lb: true }, 7],
  [undefined, 7],
])('of ranks as %j this address runs %d sequences at once', async (parallel, sequences) => {
  const config = { scheduler_config: { max_num_seqs: 7 }, parallel_config: parallel }
  fake.override = path =>
    path.startsWith('/server_info') ? { status: 200, body: JSON.stringify({ vllm_config: config }) } : undefined
  expect((await start()).capabilities.maxSequences).toBe(sequences)
})

test('a server that does not fit is refused at start, with what differs', async () => {
  const refusal = async (changes: Partial<typeof expected>) => {
    const error = await refused(
      startVllmEngine({ id: engineId('x'), url: fake.url, expected: { ...expected, ...changes } }),
    )
    expect(error).toMatchObject({ code: 'engine.unfit', retriable: false })
    expect(error.hint).toBeTruthy()
    return error.message
  }
  expect(await refusal({ contextTokens: 65 })).toMatch(/at most 64 tokens, the recipe's longest context has 65/)
  expect(await refusal({ vocabulary: 99 })).toMatch(/vocabulary is larger than the model's 99/)
  expect(await refusal({ vocabulary: 101 })).toMatch(/refuses token id 100/)
  expect(await refusal({ decode: async ids => `other ${ids.join(' ')}` })).toMatch(/server's tokenizer reads id \d+ as/)
  expect(await refusal({ tiedHead: true })).toMatch(/on CPUs the server would keep the head of the old weights/)
  fake.override = path => (path === '/is_paused' ? { status: 404, body: 'Not Found' } : undefined)
  expect(await refusal({})).toMatch(/no endpoints to pause it/)
  const raw = { choices: [{ logprobs: { top_logprobs: [{ 'token_id:1': -0.1, 'token_id:2': -3 }] } }] }
  fake.override = path => (path === '/v1/completions' ? { status: 200, body: JSON.stringify(raw) } : undefined)
  const takesAll = await refused(start())
  expect(takesAll.message).toMatch(/vocabulary/)
  fake.override = (path, body) =>
    path === '/v1/completions' && (body.prompt as number[])[0] !== vocabulary
      ? { status: 200, body: JSON.stringify(raw) }
      : undefined
  expect(await refusal({})).toMatch(/not those of the distribution/)
})

const probes: readonly (readonly [string, (path: string, body: Record<string, unknown>) => boolean])[] = [
  ['the last id', (path, { prompt }) => path === '/v1/completions' && String(prompt) === `${vocabulary - 1}`],
  ['an id beyond it', (path, { prompt }) => path === '/v1/completions' && String(prompt) === `${vocabulary}`],
  ['a priority', (path, body) => path === '/v1/completions' && 'priority' in body],
  ['the text of ids', path => path === '/detokenize'],
  ['whether it is paused', path => path === '/is_paused'],
  ['its settings', path => path.startsWith('/server_info')],
  ['its metrics', path => path === '/metrics'],
]
test.each(probes)(
  'asked for %s, a server that is busy or wants a key is not taken for an unfit one',
  async (_, isIt) => {
    for (const status of [401, 403, 429, 500, 503]) {
      fake.override = (path, body) => (isIt(path, body) ? { status, body: '<html>not now</html>' } : undefined)
      const error = await refused(start())
      expect(error).toMatchObject({ code: 'engine.failed', retriable: true })
      expect(error.message).toContain(`says ${status}: <html>not now`)
      expect(error.hint).toMatch(status < 429 ? /engine\.apiKey/ : /load/)
    }
  },
)

test('a server without those endpoints collects rollouts, and says plainly that it takes no weights', async () => {
  fake.override = path => (path === '/is_paused' ? { status: 404, body: 'Not Found' } : undefined)
  const started = await start({ expected: { ...expected, trained: false } })
  expect(started.capabilities.trainable).toBe(false)
  await started.updateWeights({ version: policyVersion(0), directory: '/as/it/is', digest: '', keepKv: false })
  expect((await started.generate(requestOn(context))).segments[0]!.policyVersion).toBe(0)
  const next = { version: policyVersion(1), directory: '/x', digest: 'd', keepKv: false }
  expect(await refused(started.updateWeights(next))).toMatchObject({ code: 'engine.no_updates', retriable: false })
})

test('where nobody listens, or something else does, the start says so', async () => {
  const nobody = await refused(startVllmEngine({ id: engineId('x'), url: 'http://127.0.0.1:9', expected }))
  expect(nobody).toMatchObject({ code: 'engine.lost' })
  expect(nobody.message).toContain('http://127.0.0.1:9')
  fake.override = () => ({ status: 200, body: '<html>hello</html>' })
  const other = await refused(start())
  expect(other).toMatchObject({ code: 'engine.failed' })
  expect(other.message).toMatch(/unexpected answer from .*html/)
})

test('metrics: labels with quotes are read, several engines are summed and none counted twice, what is missing is named', () => {
  expect(vllmMetrics('u', metricsText)).toEqual({
    kvTokens: 46_592,
    blockTokens: 128,
    prefixCaching: true,
    usedShare: 0.25,
    running: 2,
    waiting: 1,
    preemptions: 3,
    generatedTokens: 77,
    promptTokens: 1000,
    cachedPromptTokens: 400,
  })
  // One config, under the label of each engine: its blocks are those of all.
  const two = metricsText + metricsText.replaceAll('engine="0"', 'engine="1"').replace('0.25', '0.75')
  expect(vllmMetrics('u', two)).toMatchObject({ kvTokens: 46_592, usedShare: 0.5, running: 4, generatedTokens: 154 })
  const own = (tokens: unknown) => (text: string) => text.replace('engine=', `kv_cache_size_tokens="${tokens}",engine=`)
  const info = /^vllm:cache_config_info.*$/gm
  expect(vllmMetrics('u', two.replace(info, own(23_000)))).toMatchObject({ kvTokens: 46_000, usedShare: 0.5 })
  expect(vllmMetrics('u', two.replace(info, own('None')))).toMatchObject({ kvTokens: 46_592 })
  const uneven = two.replace(info, line => own(line.includes('"1"') ? 10_000 : 30_000)(line))
  expect(vllmMetrics('u', uneven)).toMatchObject({ kvTokens: 40_000, usedShare: 0.375 })
  for (const name of ['cache_config_info', 'num_preemptions_total', 'kv_cache_usage_perc']) {
    const less = metricsText.split('\n').filter(line => !line.startsWith(`vllm:${name}`))
    expect(() => vllmMetrics('u', less.join('\n'))).toThrow(name.replace('_total', ''))
  }
  for (const [figure, wrong] of [
    ['0.25', 'NaN'],
    ['0.25', '-0.5'],
    ['2.0', '-1'],
    ['77.0', '+Inf'],
  ] as const) {
    const said = new RegExp(wrong.replace('+Inf', 'Infinity'))
    expect(() => vllmMetrics('u', metricsText.replace(`} ${figure}`, `} ${wrong}`))).toThrow(said)
  }
  expect(() => vllmMetrics('u', metricsText.replace('num_gpu_blocks="364"', 'num_gpu_blocks="None"'))).toThrow(/None/)
})

/** A directory that holds weights, for a server that does not look into it. */
function modelFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'troupe-weights-'))
  folders.push(folder)
  writeFileSync(join(folder, 'model.safetensors'), 'weights')
  return folder
}
const folders: string[] = []
afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true })
})
