/** The OpenAI-compatible engine against a strict server of ours: text in, text out, and never trained on. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  type OpenaiEngine,
  type OpenaiEngineOptions,
  startOpenaiEngine,
} from '../../../../backends/engines/openai/openai'
import { engineId, policyVersion } from '../../../../messages/ids'
import { textOf, vocabulary, writeWeights } from '../../../support/hashModel'
import { type OpenaiServer, type OpenaiServerOptions, startOpenaiServer, tokensOf } from '../../../support/openaiServer'
import { refused } from '../../../support/refusal'
import { engineContract, plainSampling, requestOn } from '../contract'

const folder = mkdtempSync(join(tmpdir(), 'troupe-openai-'))
const weights = writeWeights(join(folder, 'weights'), 'one')
const context = Int32Array.from({ length: 150 }, (_, i) => (i * 37 + 11) % vocabulary)
const decode = async (tokens: Int32Array) => textOf(tokens)
const encode = async (text: string) => tokensOf(text)
const expected = { vocabulary, contextTokens: 1024, trained: false, decode, maxSequences: 8 }
const health = { everyMs: 100, timeoutMs: 500, patience: 2 }
afterAll(() => rmSync(folder, { recursive: true, force: true }))

type Given = Partial<Omit<OpenaiServerOptions, 'directory'>>

async function started(given: Given = {}, options: Partial<OpenaiEngineOptions> = {}) {
  const server = await startOpenaiServer({ directory: weights, ...given })
  const asked = { id: engineId('openai-0'), url: `${server.url}/v1`, expected, encode, health, ...options }
  const engine = await startOpenaiEngine(asked).catch(async thrown => {
    await server.kill()
    throw thrown
  })
  return { server, engine }
}

async function withEngine(given: Given, run: (engine: OpenaiEngine, server: OpenaiServer) => Promise<void>) {
  const { server, engine } = await started(given, { stallMs: 500 })
  try {
    await run(engine, server)
  } finally {
    await engine.close()
    await server.kill()
  }
}

engineContract({
  name: 'openai',
  textOnly: true,
  tolerance: 0,
  timeoutMs: 60_000,
  async start() {
    const { server, engine } = await started()
    const stop = async () => {
      await engine.close()
      await server.kill()
      expect(server.violations).toEqual([])
    }
    return { engine, weights, otherWeights: weights, context, decode, stop }
  },
})

test('a turn that stopped ends with the stop token, which the server left out, and is asked for as text', () =>
  withEngine({}, async (engine, server) => {
    const request = requestOn(context, { maxTokens: 400, sampling: { ...plainSampling, stopTokens: [7, 9] } })
    const { tokens, finish, logprobs, segments } = await engine.generate({ ...request, seed: 3 })
    expect(server.asked.at(-1)).toMatchObject({
      prompt: textOf(context),
      stop: ['<7>', '<9>'],
      max_tokens: 400,
      seed: 3,
    })
    expect(finish).toBe('stop')
    expect(tokens.at(-1)).toBe(7)
    expect(logprobs).toEqual(new Float32Array(tokens.length))
    expect(segments).toEqual([{ policyVersion: -1, start: 0, end: tokens.length }])
    expect(server.violations).toEqual([])
  }))

test('what the API cannot say is refused, not left out', () =>
  withEngine({}, async engine => {
    for (const sampling of [{ topK: 20 }, { minP: 0.1 }, { stopTokens: [1, 2, 3, 4, 5] }]) {
      const request = requestOn(context, { sampling: { ...plainSampling, ...sampling } })
      expect(await refused(engine.generate(request))).toMatchObject({ code: 'engine.bad_request', retriable: false })
    }
  }))

test('a server that dies in the middle of a turn is lost; one that babbles or falls silent fails', () =>
  withEngine({}, async (engine, server) => {
    server.mangle = () => '{"choices":[{}]}'
    expect((await refused(engine.generate(requestOn(context)))).code).toBe('engine.failed')
    server.mangle = (line, n) => (n < 3 ? line : undefined)
    expect((await refused(engine.generate(requestOn(context)))).code).toBe('engine.timeout')
    server.mangle = (line, n) => (n === 0 ? line.replace('"finish_reason":null', '"finish_reason":"stop"') : line)
    expect((await refused(engine.generate(requestOn(context)))).message).toMatch(/continues after the end/)
    server.mangle = undefined
    expect((await engine.generate(requestOn(context, { maxTokens: 5 }))).tokens).toHaveLength(5)
    const dying = engine.stream(requestOn(context, { maxTokens: 400 }), () => void server.kill())
    expect((await refused(dying)).code).toBe('engine.lost')
    expect((await engine.lost).message).toBeTruthy()
  }))

test('it is refused for training, with what to do instead, and takes no weights', async () => {
  const error = await refused(started({}, { expected: { ...expected, trained: true } }))
  expect(error).toMatchObject({ code: 'engine.not_trainable', retriable: false })
  expect(error.hint).toMatch(/troupe rollout/)
  await withEngine({}, async engine => {
    const update = { version: policyVersion(1), directory: weights, digest: 'd', keepKv: false }
    expect((await refused(engine.updateWeights(update))).code).toBe('engine.not_trainable')
  })
})

test.each<[string, Given, Partial<OpenaiEngineOptions>, RegExp]>([
  ['a chat-only server', { completions: false }, {}, /not have the endpoint \/v1\/completions/],
  ['a model that it does not have', {}, { model: 'gpt' }, /the model 'gpt'; its models: hash/],
  ['too short a context', { maxModelLen: 512 }, {}, /at most 512 tokens.*1024/],
])('%s is refused at the start', async (_, given, options, said) => {
  const error = await refused(started(given, options))
  expect(error).toMatchObject({ code: 'engine.unfit', message: expect.stringMatching(said) })
})
