/**
 * The SGLang engine against a strict server of ours: what every engine promises, and what SGLang's documents ask of a client.
 * No real SGLang takes part. A test that ends with violations has sent what SGLang does not document.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { GenerationLost } from '../../../../backends/engines/engine'
import {
  type SglangEngine,
  type SglangEngineOptions,
  startSglangEngine,
} from '../../../../backends/engines/sglang/sglang'
import { engineId, policyVersion } from '../../../../messages/ids'
import { hashForward, textOf, vocabulary, writeWeights } from '../../../support/hashModel'
import { refused } from '../../../support/refusal'
import { modelEos } from '../../../support/sglangScheduler'
import { type SglangServer, type SglangServerOptions, startSglangServer } from '../../../support/sglangServer'
import { until } from '../../../support/until'
import { engineContract, plainSampling, requestOn } from '../contract'

const folder = mkdtempSync(join(tmpdir(), 'troupe-sglang-'))
const weights = writeWeights(join(folder, 'weights'), 'one')
const otherWeights = writeWeights(join(folder, 'other'), 'two')
const context = Int32Array.from({ length: 150 }, (_, i) => (i * 37 + 11) % vocabulary)
const decode = async (tokens: Int32Array) => textOf(tokens)
const expected = { vocabulary, contextTokens: 1024, trained: true, decode, maxSequences: 8 }
const health = { everyMs: 100, timeoutMs: 500, patience: 2 }
afterAll(() => rmSync(folder, { recursive: true, force: true }))

type Given = Partial<Omit<SglangServerOptions, 'directory'>>

async function started(given: Given = {}, options: Partial<SglangEngineOptions> = {}) {
  const server = await startSglangServer({ directory: weights, ...given })
  try {
    const engine = await startSglangEngine({ id: engineId('sglang-0'), url: server.url, expected, health, ...options })
    return { server, engine }
  } catch (thrown) {
    await server.kill()
    throw thrown
  }
}

async function withEngine<T>(
  given: Given,
  options: Partial<SglangEngineOptions>,
  run: (engine: SglangEngine, server: SglangServer) => Promise<T>,
): Promise<T> {
  const { server, engine } = await started(given, options)
  try {
    return await run(engine, server)
  } finally {
    await engine.close()
    await server.kill()
  }
}

const update = (engine: SglangEngine, version: number, directory = weights, keepKv = false) =>
  engine.updateWeights({ version: policyVersion(version), directory, digest: '', keepKv })

const contracts: readonly (readonly [string, Given, Partial<SglangEngineOptions>])[] = [
  ['sglang', {}, {}],
  ['sglang (an older server, each event repeats the tokens)', { age: 'older' }, {}],
  ['sglang (events with new tokens only, paused by retracting)', { incremental: true }, { pause: 'retract' }],
]
for (const [name, given, options] of contracts) {
  engineContract({
    name,
    tolerance: 1e-5,
    timeoutMs: 60_000,
    forward: hashForward,
    async start() {
      const { server, engine } = await started({ stepMs: 2, ...given }, options)
      return {
        engine,
        weights,
        otherWeights,
        context,
        decode,
        async stop() {
          await engine.close()
          await server.kill()
          expect(server.violations).toEqual([])
        },
      }
    },
  })
}

describe('what the SGLang engine asks of its server', () => {
  test('every sampling field is said, and nothing that SGLang does not document', () =>
    withEngine({}, {}, async (engine, server) => {
      const sampling = { temperature: 0.7, topP: 0.9, topK: 20, minP: 0.01, stopTokens: [3, 4] }
      await engine.generate(requestOn(context, { sampling, maxTokens: 7 }))
      const { body } = server.asked.filter(({ path }) => path === '/generate').at(-1)!
      expect(body).toMatchObject({ stream: true, return_logprob: true, input_ids: [...context] })
      expect(body.sampling_params).toMatchObject({
        ...{ max_new_tokens: 7, min_new_tokens: 0, temperature: 0.7, top_p: 0.9, top_k: 20, min_p: 0.01, n: 1 },
        ...{ frequency_penalty: 0, presence_penalty: 0, repetition_penalty: 1, stop_token_ids: [3, 4] },
      })
      expect(server.violations).toEqual([])
    }))

  test('an end that only the model names does not end a turn: it goes on in another leg', () =>
    withEngine({}, {}, async (engine, server) => {
      // 400 tokens at a flat distribution meet the model's end more often than not; some seeds more.
      const sampling = { ...plainSampling, temperature: 100, stopTokens: [vocabulary - 1] }
      let ends = 0
      for (let i = 0; i < 20 && ends === 0; i++) {
        const request = requestOn(context, { sampling, maxTokens: 400 })
        const { tokens, logprobs, finish } = await engine.generate(request)
        const before = tokens.slice(0, -1)
        ends = before.filter(token => token === modelEos).length
        expect(finish).toBe(tokens.at(-1) === vocabulary - 1 ? 'stop' : 'length')
        expect(before.includes(vocabulary - 1)).toBe(false)
        const [byModel] = hashForward(weights, [{ context, tokens, temperature: 100 }])
        expect(Math.max(...logprobs.map((p, k) => Math.abs(p - byModel![k]!)))).toBeLessThan(1e-5)
      }
      expect(ends).toBeGreaterThan(0)
      expect(server.violations).toEqual([])
    }))

  test.each([
    [{}, 0, undefined],
    [{ enable_priority_scheduling: true }, 1, -7],
    [{ enable_priority_scheduling: true, schedule_low_priority_values_first: true }, -1, 7],
  ])('priorities under %j are read with sign %d: the older goes first', (serverArgs, sign, sent) =>
    withEngine({ serverArgs }, {}, async (engine, server) => {
      expect(engine.traits.prioritySign).toBe(sign)
      await engine.generate(requestOn(context, { priority: 7, maxTokens: 1 }))
      expect(server.asked.at(-1)!.body.priority).toBe(sent)
      expect(server.violations).toEqual([])
    }),
  )

  test('with --enable-deterministic-inference the same seed gives the same tokens', () =>
    withEngine({ serverArgs: { enable_deterministic_inference: true } }, {}, async engine => {
      expect(engine.capabilities.deterministic).toBe(true)
      const [one, same, other] = await Promise.all(
        [5, 5, 6].map(seed => engine.generate(requestOn(context, { seed, maxTokens: 30 }))),
      )
      expect(one!.tokens).toEqual(same!.tokens)
      expect(one!.tokens).not.toEqual(other!.tokens)
    }))

  test('an update pauses, loads, flushes and goes on, in this order; KV is kept where the recipe says so', () =>
    withEngine({}, {}, async (engine, server) => {
      const paths = () => server.asked.splice(0).map(({ path }) => path)
      paths()
      await update(engine, 0)
      expect(paths()).toEqual([
        ...['/pause_generation', '/update_weights_from_disk', '/flush_cache', '/continue_generation'],
      ])
      await update(engine, 1, otherWeights, true)
      expect(paths()).toEqual(['/pause_generation', '/update_weights_from_disk', '/continue_generation'])
      await engine.generate(requestOn(context, { maxTokens: 2 }))
      await update(engine, 2, weights, true)
      const again = await engine.generate(requestOn(context, { maxTokens: 2 }))
      expect(again.cachedTokens).toBe(context.length - 1)
      await update(engine, 3)
      expect((await engine.generate(requestOn(context, { maxTokens: 2 }))).cachedTokens).toBe(0)
      expect(server.violations).toEqual([])
    }))

  test('in place, a turn goes on with the KV of older weights, and its segments say so', () =>
    withEngine({}, { pause: 'in_place' }, async engine => {
      await update(engine, 0, weights, true)
      let updated: Promise<void> | undefined
      const answer = await engine.stream(requestOn(context, { maxTokens: 300 }), () => {
        updated ??= update(engine, 1, otherWeights, true)
      })
      await updated
      expect(answer.segments.map(({ policyVersion: v }) => v)).toEqual([0, 1])
      expect((await refused(update(engine, 2))).code).toBe('engine.bad_request')
    }))

  test('tokens that come after an update but were sampled before it count to the older weights', () =>
    withEngine({}, { pause: 'retract' }, async engine => {
      await update(engine, 0)
      let updates = Promise.resolve()
      let version = 0
      const answer = await engine.stream(requestOn(context, { maxTokens: 400 }), () => {
        if (version === 5) return
        const next = ++version
        updates = updates.then(() => update(engine, next, next % 2 === 1 ? otherWeights : weights))
      })
      await updates
      const { tokens, logprobs, segments } = answer
      expect(segments.length).toBeGreaterThan(3)
      const both = [weights, otherWeights].map(each => hashForward(each, [{ context, tokens, temperature: 1 }])[0]!)
      for (const { policyVersion: by, start, end } of segments) {
        const expectedLogprobs = both[by % 2]!.slice(start, end)
        const distances = logprobs.slice(start, end).map((p, i) => Math.abs(p - expectedLogprobs[i]!))
        expect(Math.max(...distances)).toBeLessThan(1e-5)
      }
    }))

  test('a turn that breaks off after an update in its middle keeps only the tokens that came before it', () =>
    withEngine({}, { pause: 'retract', stallMs: 500 }, async (engine, server) => {
      await update(engine, 0)
      let updated: Promise<void> | undefined
      let later = 0
      server.mangle = line => {
        if (server.asked.some(({ body }) => body.weight_version === '1')) later++
        return later < 4 ? line : undefined
      }
      let streamed = 0
      const error = await refused(
        engine.stream(requestOn(context, { maxTokens: 400 }), tokens => {
          streamed += tokens.length
          updated ??= update(engine, 1, otherWeights)
        }),
      )
      await updated
      const { tokens, segments } = (error as GenerationLost).partial
      expect(segments).toEqual([{ policyVersion: 0, start: 0, end: tokens.length }])
      expect(tokens.length).toBeGreaterThan(0)
      expect(tokens.length).toBeLessThan(streamed)
    }))

  test.each(['/update_weights_from_disk', '/flush_cache'])(
    'weights whose load succeeded are known by their version, though the answer to %s is lost',
    path =>
      withEngine({}, {}, async (engine, server) => {
        await update(engine, 0)
        server.dropped = path
        await refused(update(engine, 1, otherWeights))
        const { segments } = await engine.generate(requestOn(context, { maxTokens: 3 }))
        expect(segments).toEqual([{ policyVersion: 1, start: 0, end: 3 }])
        expect((await engine.status()).version).toBe(path === '/flush_cache' ? 1 : 0)
      }),
  )

  test('a request that waits in the queue when the server is paused goes on after the update', () =>
    withEngine({ stepMs: 2 }, {}, async (engine, server) => {
      await update(engine, 0)
      const requests = Array.from({ length: 12 }, () => engine.generate(requestOn(context, { maxTokens: 60 })))
      await until(async () => (await engine.status()).waiting > 0)
      await update(engine, 1, otherWeights)
      for (const { tokens, segments } of await Promise.all(requests)) {
        expect(tokens).toHaveLength(60)
        expect(segments.at(-1)).toMatchObject({ policyVersion: 1, end: 60 })
      }
      expect(server.violations).toEqual([])
    }))

  test('a request that is aborted before the scheduler has it does not run on', () =>
    withEngine({ dispatchMs: 200, stepMs: 10 }, {}, async (engine, server) => {
      const before = server.sampled
      const request = requestOn(context, { maxTokens: 400 })
      const answer = engine.generate(request)
      await until(async () =>
        server.asked.some(({ body }) => (body.sampling_params as { max_new_tokens?: number })?.max_new_tokens === 400),
      )
      await engine.abort(request.requestId)
      expect(await answer).toMatchObject({ finish: 'aborted', tokens: new Int32Array() })
      await new Promise(resolve => setTimeout(resolve, 600))
      await until(async () => (await engine.status()).running === 0)
      expect(server.sampled - before).toBeLessThan(100)
    }))

  test('weights that cannot be loaded leave the server going on with those that it had', () =>
    withEngine({}, {}, async (engine, server) => {
      await update(engine, 0)
      const broken = writeWeights(join(folder, 'broken'), 'broken')
      const error = await refused(update(engine, 1, broken))
      expect(error).toMatchObject({
        code: 'engine.update_failed',
        message: expect.stringMatching(/deserializing header/),
      })
      expect(server.asked.at(-1)!.path).toBe('/continue_generation')
      const { segments } = await engine.generate(requestOn(context, { maxTokens: 3 }))
      expect(segments).toEqual([{ policyVersion: 0, start: 0, end: 3 }])
      expect(server.violations).toEqual([])
    }))

  test('the server goes on though the answer to its pause is lost', () =>
    withEngine({}, {}, async (engine, server) => {
      await update(engine, 0)
      const lost = await refused(
        (async () => {
          server.dropped = '/pause_generation'
          await update(engine, 1, otherWeights)
        })(),
      )
      expect(lost.message).toMatch(/broke off, but the server is alive/)
      expect(server.asked.at(-1)!.path).toBe('/continue_generation')
      await update(engine, 1, otherWeights)
      expect((await engine.generate(requestOn(context, { maxTokens: 2 }))).segments[0]!.policyVersion).toBe(1)
      expect(server.violations).toEqual([])
    }))

  test('a server that was left paused goes on for the run that trains it', async () => {
    const server = await startSglangServer({ directory: weights })
    const headers = { 'content-type': 'application/json' }
    await fetch(`${server.url}/pause_generation`, { method: 'POST', headers, body: '{"mode":"retract"}' })
    const engine = await startSglangEngine({ id: engineId('sglang-0'), url: server.url, expected, health })
    try {
      await update(engine, 0)
      expect((await engine.generate(requestOn(context, { maxTokens: 2 }))).tokens).toHaveLength(2)
      expect(server.violations).toEqual([])
    } finally {
      await engine.close()
      await server.kill()
    }
  })

  test('it sleeps and wakes: what ran goes on, under the weights that were loaded last', () =>
    withEngine({ stepMs: 2 }, {}, async (engine, server) => {
      await update(engine, 4, otherWeights)
      let slept: Promise<void> | undefined
      const turn = engine.stream(requestOn(context, { maxTokens: 200 }), () => {
        slept ??= engine.sleep()
      })
      await until(async () => slept !== undefined)
      await slept
      expect((await refused(update(engine, 5))).code).toBe('engine.asleep')
      const later = engine.generate(requestOn(context, { maxTokens: 3 }))
      await new Promise(resolve => setTimeout(resolve, 50))
      await engine.wake()
      const { tokens, logprobs } = await turn
      expect(tokens).toHaveLength(200)
      const [byModel] = hashForward(otherWeights, [{ context, tokens, temperature: 1 }])
      expect(Math.max(...logprobs.map((p, k) => Math.abs(p - byModel![k]!)))).toBeLessThan(1e-5)
      expect((await later).segments).toEqual([{ policyVersion: 4, start: 0, end: 3 }])
      expect(server.violations).toEqual([])
    }))

  test('weights that it is woken with are loaded once, in place of the older ones', () =>
    withEngine({ stepMs: 2 }, {}, async (engine, server) => {
      const loads = () => server.asked.filter(({ path }) => path === '/update_weights_from_disk').length
      const given = (version: number) => ({
        version: policyVersion(version),
        directory: otherWeights,
        digest: '',
        keepKv: false,
      })
      await update(engine, 4, otherWeights)
      await engine.sleep()
      const before = loads()
      await engine.wake(given(5))
      expect(loads() - before).toBe(1)
      await engine.wake(given(6))
      expect(loads() - before).toBe(2)
      const { segments } = await engine.generate(requestOn(context, { maxTokens: 2 }))
      expect(segments).toEqual([{ policyVersion: 6, start: 0, end: 2 }])
      expect(server.violations).toEqual([])
    }))

  test('a server that was not started for it does not sleep', () =>
    withEngine({ serverArgs: { enable_memory_saver: false } }, {}, async engine => {
      expect((await refused(engine.sleep())).code).toBe('engine.no_sleep')
    }))
})

describe('an SGLang server that fails', () => {
  test('a server that dies in the middle of a turn is lost, with the tokens so far', () =>
    withEngine({ stepMs: 5 }, {}, async (engine, server) => {
      const error = await refused(
        engine.stream(requestOn(context, { maxTokens: 400 }), tokens => {
          if (tokens.length > 0) setTimeout(() => void server.kill(), 20)
        }),
      )
      expect(error.code).toBe('engine.lost')
      expect(error).toBeInstanceOf(GenerationLost)
      const { partial } = error as GenerationLost
      expect(partial.tokens.length).toBeGreaterThan(0)
      expect(partial.logprobs).toHaveLength(partial.tokens.length)
      expect((await engine.lost).message).toMatch(/no answer|dead/)
      expect((await refused(engine.generate(requestOn(context)))).code).toBe('engine.lost')
    }))

  const garbled: readonly (readonly [string, (event: Record<string, never>) => unknown, RegExp])[] = [
    ['no JSON', () => '{"text": ', /no JSON/],
    ['no object', () => '[]', /no object/],
    ['no meta_info', () => '{}', /without meta_info/],
    ['fewer logprobs than tokens', e => edited(e, { completion_tokens: 9 }), /9 tokens/],
    ['no logprobs', e => edited(e, { output_token_logprobs: undefined }), /without output_token_logprobs/],
    ['a positive logprob', e => edited(e, { output_token_logprobs: [[0.5, 1, null]], completion_tokens: 1 }), /0\.5/],
    ['a null logprob', e => edited(e, { output_token_logprobs: [[null, 1, null]], completion_tokens: 1 }), /null/],
    [
      'an id beyond the vocabulary',
      e => edited(e, { output_token_logprobs: [[-1, 999, null]], completion_tokens: 1 }),
      /999/,
    ],
    ['weights of somebody else', e => edited(e, { weight_version: 'theirs', weight_versions: undefined }), /'theirs'/],
    ['an end of another kind', e => edited(e, { finish_reason: { type: 'tired' } }), /'tired'/],
    ['numbers that are none', e => edited(e, { finish_reason: { type: 'stop', matched: 'NaN happened' } }), /NaN/],
    [
      'an end without a token, which would be asked for again without end',
      e => edited(e, { finish_reason: { type: 'stop', matched: 7 }, completion_tokens: 0, output_token_logprobs: [] }),
      /stopped without a token/,
    ],
    [
      'an end that nobody asked for',
      e => edited(e, { finish_reason: { type: 'abort' } }),
      /this process did not abort it/,
    ],
    [
      'more tokens than were asked for',
      e => edited(e, { output_token_logprobs: Array(2).fill([-1, 5, null]), completion_tokens: 2 }),
      /more than 1 tokens/,
    ],
    [
      'an end at another token than its last',
      e => edited(e, { finish_reason: { type: 'stop', matched: 7 }, output_token_logprobs: [[-1, 5, null]] }),
      /stopped at token 7, but its last token is 5/,
    ],
    [
      'an end by length before it',
      e => edited(e, { finish_reason: { type: 'length' }, completion_tokens: 0, output_token_logprobs: [] }),
      /'length' after 0 of 1 tokens/,
    ],
    ['a count in quotes', e => edited(e, { cached_tokens: '7' }), /cached_tokens is "7"/],
    ['half a count', e => edited(e, { cached_tokens: 1.5 }), /cached_tokens is 1\.5/],
    ['a count below 0', e => edited(e, { num_retractions: -1 }), /num_retractions is -1/],
    ['a full queue', e => edited(e, { finish_reason: { type: 'abort', status_code: 503, message: 'full' } }), /full/],
  ]
  const edited = (event: Record<string, object>, changes: object) =>
    JSON.stringify({ ...event, meta_info: { ...event.meta_info, ...changes } })

  test.each(garbled)('%s is engine.failed, and the engine goes on', (_, change, said) =>
    withEngine({}, {}, async (engine, server) => {
      server.mangle = line => String(change(JSON.parse(line)))
      const error = await refused(engine.generate(requestOn(context, { maxTokens: 1 })))
      expect(error).toMatchObject({ code: 'engine.failed', retriable: true, message: expect.stringMatching(said) })
      server.mangle = undefined
      expect((await engine.generate(requestOn(context, { maxTokens: 3 }))).tokens).toHaveLength(3)
    }),
  )

  test('a server that says nothing more is given up after a while, and keeps what it said', () =>
    withEngine({}, { stallMs: 200 }, async (engine, server) => {
      server.mangle = (line, n) => (n < 3 ? line : undefined)
      const error = await refused(engine.generate(requestOn(context, { maxTokens: 100 })))
      expect(error).toMatchObject({ code: 'engine.timeout', retriable: true })
      expect((error as GenerationLost).partial.tokens.length).toBeGreaterThan(0)
    }))

  test(
    'an abort that the server does not hear of is ended by its connection',
    () =>
      withEngine({}, {}, async (engine, server) => {
        // From the second event on, which may be the abort's own, it says nothing.
        server.mangle = (line, n) => (n < 1 ? line : undefined)
        const request = requestOn(context, { maxTokens: 50 })
        const answer = engine.stream(request, () => void engine.abort(request.requestId))
        expect((await answer).finish).toBe('aborted')
        expect(server.asked.filter(({ path }) => path === '/abort_request').length).toBeGreaterThan(1)
      }),
    30_000,
  )
})

describe('a server that does not fit is refused at the start', () => {
  const refusals: readonly (readonly [string, Given, Partial<SglangEngineOptions>, RegExp])[] = [
    ['another vocabulary', { vocabulary: 999 }, {}, /999 ids, the model's has 320/],
    ['another tokenizer', { textOf: ids => ids.map(id => `{${id}}`).join('') }, {}, /tokenizer reads id/],
    ['too short a context', { contextTokens: 512 }, {}, /at most 506 tokens.*1024/],
    ['raw logprobs', { rawLogprobs: true }, {}, /not those of the distribution/],
    ['no updates', { missing: ['/update_weights_from_disk'] }, {}, /no endpoints to pause/],
    ['no pause', { missing: ['/pause_generation'] }, {}, /no endpoints to pause/],
    ['defaults of its own', { serverArgs: { preferred_sampling_params: { regex: 'a+' } } }, {}, /regex/],
    ['no spans for another pause', { age: 'older' }, { pause: 'retract' }, /which weights sampled which token/],
  ]
  test.each(refusals)('%s', async (_, given, options, said) => {
    const error = await refused(started(given, options))
    expect(error).toMatchObject({ code: 'engine.unfit', retriable: false, message: expect.stringMatching(said) })
    expect(error.hint).toBeTruthy()
  })

  const html = '<html>not now</html>'
  const probes: readonly (readonly [string, NonNullable<Given['instead']>])[] = [
    ['the text of ids', path => (path === '/detokenize' ? html : undefined)],
    ['a field of newer servers', (_, { sampling_params: s }) => (s && 'stream_interval' in s ? html : undefined)],
    ['its vocabulary', (_, { sampling_params: s }) => (s && 'logit_bias' in s ? html : undefined)],
    ['an update', path => (path === '/update_weights_from_disk' ? html : undefined)],
    ['a pause', path => (path === '/pause_generation' ? html : undefined)],
  ]
  test.each(probes)('but not one that is busy when it is asked for %s: that is engine.failed', async (_, instead) => {
    const error = await refused(started({ instead }))
    expect(error).toMatchObject({ code: 'engine.failed', retriable: true })
    expect(error.message).toContain(`says 503: ${html}`)
  })

  test('a key that the server wants is named in the refusal, and sent where it is given', async () => {
    await expect(started({ token: 'secret' })).rejects.toMatchObject({ code: 'engine.failed' })
    await withEngine({ token: 'secret' }, { token: 'secret' }, async engine => {
      expect((await engine.generate(requestOn(context, { maxTokens: 2 }))).tokens).toHaveLength(2)
    })
  })

  test('nobody there is engine.lost', async () => {
    const url = 'http://127.0.0.1:9'
    const error = await refused(startSglangEngine({ id: engineId('x'), url, expected }))
    expect(error.code).toBe('engine.lost')
  })
})
