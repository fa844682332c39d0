/**
 * The OpenAI-compatible engine: any server with /v1/completions. Text in, text out.
 *
 * in   generate, abort        out  generations whose token ids are our tokenizer's reading of the text that came
 * Invariant: it is not trainable, and says so: the ids need not be those that were sampled, the logprobs are 0 and mean
 * nothing, and it takes no weights. A turn that stopped has a stop token of the recipe at its end, which such servers leave out.
 * Source: OpenAI's API reference, "Create completion".
 */
import type { EngineId } from '../../messages/ids'
import { policyVersion } from '../../messages/ids'
import { type Effects, systemEffects } from '../effects'
import type { Engine, EngineCapabilities, GenerateRequest, Generation } from '../engine'
import { asError, TroupeError } from '../errors'
import { completionOf, openaiBody } from './openaiCompletion'
import type { ServerExpectation } from './serverExpectation'
import { type ServerHealthOptions, serverHealth } from './serverHealth'
import { garbage, messageOf, objectOf, type ServerHttp, serverHttp } from './serverHttp'
import { asFailure, badRequest, checkRequest, Gate, wanted } from './serverRequest'
import { unfitServer } from './serverTokenizer'

export interface OpenaiEngineOptions {
  readonly id: EngineId
  /** http://HOST:PORT, or https, with or without /v1 at its end. */
  readonly url: string
  readonly expected: ServerExpectation
  /** Text to ids, by the tokenizer of the run's model. */
  readonly encode: (text: string) => Promise<Int32Array>
  /** The name that requests give. Default: the first that the server names. */
  readonly model?: string
  readonly token?: string
  readonly stallMs?: number
  readonly firstTokenMs?: number
  readonly health?: ServerHealthOptions
  readonly fx?: Effects
}

export interface OpenaiEngine extends Engine {
  /** `generate`, with our reading of each piece of text as it comes: together they need not be the answer's tokens. */
  stream(request: GenerateRequest, onTokens: (tokens: Int32Array) => void, signal?: AbortSignal): Promise<Generation>
}

const askMs = 30_000
const generateMs = 120_000

/** @throws TroupeError engine.not_trainable, engine.unfit (not retriable), engine.lost, engine.timeout, engine.failed */
export async function startOpenaiEngine(options: OpenaiEngineOptions): Promise<OpenaiEngine> {
  const { id, expected, encode, stallMs = 120_000, firstTokenMs = 600_000, fx = systemEffects } = options
  const url = options.url.replace(/\/+$/, '').replace(/\/v1$/, '')
  if (expected.trained) throw notTrainable(url)
  const http = serverHttp(url, options.token)
  const { model, contextTokens } = await probe(http, expected, options.model).catch(thrown => {
    http.close()
    throw thrown
  })
  const capabilities: EngineCapabilities = {
    kind: 'openai',
    model,
    // Such a server does not say what it holds: as if every sequence had a context of its own.
    kvTokens: contextTokens * expected.maxSequences,
    blockTokens: 1,
    maxSequences: expected.maxSequences,
    contextTokens,
    vocabulary: expected.vocabulary,
    prefixSharing: false,
    prioritySign: 0,
    trainable: false,
    deterministic: false,
  }
  // Some of these servers are far away and count what they are asked.
  const health = serverHealth(http, { path: '/v1/models', everyMs: 30_000, ...options.health })
  const running = new Map<string, { readonly aborter: AbortController; readonly contextTokens: number }>()
  const gate = new Gate()
  const totals = { generatedTokens: 0, prefilledTokens: 0, preemptions: 0 }
  let version = policyVersion(-1)
  let ended: Error | undefined
  let busySince = 0
  let busyMs = 0
  void health.lost.then(error => {
    ended ??= error
    for (const { aborter } of running.values()) aborter.abort(ended)
  })

  type OnTokens = ((tokens: Int32Array) => void) | undefined

  async function answer(request: GenerateRequest, aborter: AbortController, onTokens: OnTokens): Promise<Generation> {
    const { context, sampling, resumedTokens } = request
    const queuedAt = fx.now()
    const maxTokens = Math.min(request.maxTokens, contextTokens - context.length)
    const [prompt, ...stop] = await Promise.all(
      [context, ...sampling.stopTokens.map(token => Int32Array.of(token))].map(tokens => expected.decode(tokens)),
    )
    const body = openaiBody(model, prompt ?? '', stop, request, maxTokens)
    const dog = gate.watchdog(stallMs, firstTokenMs, url, error => aborter.abort(error))
    let text = ''
    let finish: Generation['finish'] | undefined
    let firstTokenAt = 0
    try {
      const reply = await http.stream('/v1/completions', body, firstTokenMs, aborter.signal)
      if (reply.status !== 200) throw refusal(url, reply.status, await reply.text())
      for await (const line of reply.lines) {
        if (line === '[DONE]') continue // to the end, or the connection could not be kept
        const piece = completionOf(url, line)
        dog.fed()
        if (piece.text !== '' && firstTokenAt === 0) firstTokenAt = fx.now()
        text += piece.text
        finish = piece.finish ?? finish
        if (onTokens !== undefined && piece.text !== '') onTokens(await encode(piece.text))
      }
      if (finish === undefined) throw garbage(url, 'a stream that ends before its completion does')
    } catch (thrown) {
      if (finish === undefined && aborter.signal.reason !== wanted) {
        throw await why(asError(aborter.signal.reason ?? thrown))
      }
    } finally {
      dog.stop()
    }
    let tokens = text === '' ? new Int32Array() : await encode(text)
    const end = sampling.stopTokens[0]
    if (finish === 'stop' && end !== undefined) tokens = Int32Array.from([...tokens, end])
    if (tokens.length > maxTokens) {
      tokens = tokens.slice(0, maxTokens)
      finish = 'length'
    }
    totals.generatedTokens += tokens.length
    const endedAt = fx.now()
    const own = Int32Array.from([...context.subarray(context.length - resumedTokens), ...tokens])
    return {
      tokens,
      logprobs: new Float32Array(tokens.length),
      text: own.length === 0 ? '' : await expected.decode(own),
      finish: finish ?? 'aborted',
      segments: tokens.length === 0 ? [] : [{ policyVersion: version, start: 0, end: tokens.length }],
      cachedTokens: 0,
      preemptions: 0,
      timing: { queuedAt, startedAt: queuedAt, firstTokenAt: firstTokenAt || endedAt, endedAt },
    }
  }

  async function why(error: Error): Promise<Error> {
    if (ended !== undefined) return ended
    if (error instanceof TroupeError && !error.retriable) return error
    return (await health.check()) ?? asFailure(url, error)
  }

  async function generate(request: GenerateRequest, signal?: AbortSignal, onTokens?: OnTokens): Promise<Generation> {
    const { requestId, context } = request
    if (ended !== undefined) throw ended
    if (signal?.aborted) throw asError(signal.reason)
    if (running.has(requestId)) throw badRequest(`request ${requestId} is already running on ${id}`)
    checkRequest(id, capabilities, context)
    const aborter = new AbortController()
    const onAbort = () => aborter.abort(wanted)
    signal?.addEventListener('abort', onAbort, { once: true })
    if (running.size === 0) busySince = fx.elapsed()
    running.set(requestId, { aborter, contextTokens: context.length })
    totals.prefilledTokens += context.length
    try {
      return await answer(request, aborter, onTokens)
    } finally {
      signal?.removeEventListener('abort', onAbort)
      running.delete(requestId)
      if (running.size === 0) busyMs += fx.elapsed() - busySince
    }
  }

  return {
    id,
    capabilities,
    lost: health.lost,
    generate: (request, signal) => generate(request, signal),
    stream: (request, onTokens, signal) => generate(request, signal, onTokens),
    abort: async requestId => running.get(requestId)?.aborter.abort(wanted),
    release: async () => {},
    async updateWeights(update) {
      // The model as it came is what it has; others cannot be given to it.
      if (update.digest !== '' || update.version !== 0) throw notTrainable(url)
      version = update.version
    },
    async status() {
      if (ended !== undefined) throw ended
      const referencedTokens = [...running.values()].reduce((sum, each) => sum + each.contextTokens, 0)
      return {
        ...{ type: 'engine.status', at: fx.now(), engine: id, version, kvTokens: capabilities.kvTokens },
        ...{ referencedTokens, cachedTokens: 0, running: running.size, waiting: 0, ...totals },
        busyMs: busyMs + (running.size === 0 ? 0 : fx.elapsed() - busySince),
        ...{ cpuMs: 0, maxRssBytes: 0 },
      }
    },
    async close() {
      health.close()
      ended ??= new TroupeError('engine.lost', { boundary: 'engine', retriable: true, message: `${id} is closed` })
      for (const { aborter } of running.values()) aborter.abort(wanted)
      http.close()
    },
  }
}

/** A model that it names, and a completion of one token from it. */
async function probe(http: ServerHttp, expected: ServerExpectation, wish: string | undefined) {
  const { url } = http
  const { data } = objectOf(url, '/v1/models', await http.get('/v1/models', askMs))
  const cards = (Array.isArray(data) ? data : []) as { id?: unknown; max_model_len?: unknown }[]
  const names = cards.map(card => card?.id).filter(name => typeof name === 'string')
  const model = wish ?? names[0]
  if (model === undefined) throw garbage(url, '/v1/models names no model')
  const server = `OpenAI-compatible server at ${url}`
  const card = cards.find(each => each.id === model)
  if (card === undefined)
    throw unfitServer(server, `it has no model '${model}', but ${names.join(', ')}`, 'name one of these')
  const told = card.max_model_len
  const contextTokens = typeof told === 'number' && Number.isInteger(told) ? told : expected.contextTokens
  if (contextTokens < expected.contextTokens) {
    const differs = `its contexts have at most ${contextTokens} tokens, the recipe's limits.contextTokens is ${expected.contextTokens}`
    throw unfitServer(server, differs, 'start it with a longer context, or lower limits.contextTokens')
  }
  const one = { model, prompt: 'a', max_tokens: 1, temperature: 1, top_p: 1, n: 1, stream: false }
  const reply = await http.post('/v1/completions', one, generateMs)
  if (reply.status === 404 || reply.status === 405) {
    const hint = 'use a server that continues a text: what a model has begun cannot be sent as a chat'
    throw unfitServer(server, 'it has no /v1/completions', hint)
  }
  const { choices } = objectOf(url, '/v1/completions', reply)
  if (typeof (choices as { text?: unknown }[] | undefined)?.[0]?.text !== 'string') {
    throw garbage(url, '/v1/completions gives no choices with a text')
  }
  return { model, contextTokens }
}

function refusal(url: string, status: number, text: string): TroupeError {
  const tooLong = status === 400 && /context length|max_model_len|too long/i.test(text)
  return new TroupeError(tooLong ? 'engine.context_exceeded' : 'engine.failed', {
    boundary: 'engine',
    retriable: status >= 500 || status === 429,
    message: `${url} says ${status}: ${messageOf(text)}`,
  })
}

/** Such a server gives text, without the ids and logprobs that were sampled, and takes no weights. */
export const notTrainable = (url: string): TroupeError =>
  new TroupeError('engine.not_trainable', {
    boundary: 'engine',
    retriable: false,
    message: `the OpenAI-compatible server at ${url} cannot be trained with: it gives text, without the ids and logprobs that were sampled, and takes no weights`,
    hint: 'train with --engine local, vllm:URL or sglang:URL; this one serves `troupe rollout` and `troupe eval`',
  })
