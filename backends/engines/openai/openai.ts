/**
 * The OpenAI-compatible engine: any server with /v1/completions. Text in, text out.
 *
 * in   generate, abort        out  generations whose token ids come from encoding the text with the run's tokenizer
 * Invariant: the engine is marked as not trainable: the ids need not be those that were sampled, the logprobs are 0 and
 * mean nothing, and it loads no weights. An answer that ends with `stop` gets the request's first stop token at its
 * end, which such servers leave out.
 * Source: OpenAI's API reference, "Create completion".
 */
import { policyVersion } from '../../../messages/ids'
import { systemEffects } from '../../../runtime/effects'
import { TroupeError } from '../../../runtime/errors'
import type { EngineCapabilities, Generation } from '../engine'
import type { ServerExpectation } from '../server/expectation'
import { serverHealth } from '../server/health'
import { type ServerHttp, serverHttp } from '../server/http'
import { checkContext, generateMs, modelCards } from '../server/probe'
import { garbage, objectOf } from '../server/reply'
import { refused } from '../server/request'
import { ServerRequests } from '../server/requests'
import type { ServerRun } from '../server/run'
import { unfitServer } from '../server/tokenizer'
import type { ServerEngine, ServerEngineOptions } from '../server/traits'
import { completionOf, openaiBody } from './completion'

/** Options of the engine. `url` may end with /v1. */
export interface OpenaiEngineOptions extends ServerEngineOptions {
  /** Encodes text with the tokenizer of the run's model. */
  readonly encode: (text: string) => Promise<Int32Array>
  /** Name of the model to request. Default: the first model that the server lists. */
  readonly model?: string
}

/**
 * The OpenAI-compatible engine. `stream` encodes each piece of text on its own, as it arrives; so all streamed tokens
 * together may differ from the answer's, which come from encoding the whole text.
 */
export type OpenaiEngine = ServerEngine

const tooLong = /context length|max_model_len|too long/i

/**
 * Connects to a server and checks it. @throws TroupeError, not retriable: engine.not_trainable if the run trains;
 * engine.unfit if the server lacks the model, /v1/completions or room for the run's contexts; config.bad_engine if
 * `url` is not valid. Retriable: engine.lost and engine.timeout if the server does not answer; engine.failed if its
 * answer is not that of such a server.
 */
export async function startOpenaiEngine(options: OpenaiEngineOptions): Promise<OpenaiEngine> {
  const { id, expected, encode, stallMs, firstTokenMs, fx = systemEffects } = options
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
    // Assumes a whole context per sequence, since such a server does not report the size of its KV cache.
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
  // Polls the server rarely, because some OpenAI-compatible servers are far away and count requests.
  const health = serverHealth(http, { path: '/v1/models', everyMs: 30_000, ...options.health })
  const requests = new ServerRequests({ id, capabilities, http, health, fx, stallMs, firstTokenMs })
  const totals = { generatedTokens: 0, prefilledTokens: 0, preemptions: 0 }
  let version = policyVersion(-1)

  async function answer(run: ServerRun): Promise<Generation> {
    const { request, maxTokens } = run
    const { context, sampling } = request
    totals.prefilledTokens += context.length
    const [prompt, ...stop] = await Promise.all(
      [context, ...sampling.stopTokens.map(token => Int32Array.of(token))].map(tokens => expected.decode(tokens)),
    )
    const question = {
      path: '/v1/completions',
      body: openaiBody(model, prompt ?? '', stop, request, maxTokens),
      refused: (status: number, message: string) => refused(url, status, message, tooLong),
    }
    let text = ''
    let isEnded = false
    let finish = await requests.ask(run, question, async line => {
      const piece = completionOf(url, line)
      if (isEnded && piece.text !== '') throw garbage(url, 'the answer continues after the end of its generation')
      isEnded ||= piece.finish !== null
      if (piece.text === '') return piece.finish
      run.begun()
      text += piece.text
      run.onTokens?.(await encode(piece.text))
      return piece.finish
    })
    let tokens = text === '' ? new Int32Array() : await encode(text)
    const end = sampling.stopTokens[0]
    if (finish === 'stop' && end !== undefined) tokens = Int32Array.from([...tokens, end])
    if (tokens.length > maxTokens) {
      tokens = tokens.slice(0, maxTokens)
      finish = 'length'
    }
    totals.generatedTokens += tokens.length
    const segments = tokens.length === 0 ? [] : [{ policyVersion: version, start: 0, end: tokens.length }]
    return run.generation(
      expected.decode,
      { finish, cachedTokens: 0, preemptions: 0, queuedMs: 0 },
      { tokens, logprobs: new Float32Array(tokens.length), segments },
    )
  }

  return {
    ...requests.engine(answer),
    async updateWeights(update) {
      // Accepts only the initial model (version 0, no digest), since such a server cannot load weights.
      if (update.digest !== '' || update.version !== 0) throw notTrainable(url)
      version = update.version
    },
    async status() {
      requests.mustLive()
      return {
        ...{ type: 'engine.status', at: fx.now(), engine: id, version, kvTokens: capabilities.kvTokens },
        ...{
          referencedTokens: requests.contextTokens,
          cachedTokens: 0,
          running: requests.running,
          waiting: 0,
          ...totals,
        },
        busyMs: requests.busyMs,
        ...{ cpuMs: 0, maxRssBytes: 0 },
      }
    },
  }
}

/**
 * Checks that the server has the model, that the run's contexts fit, and that /v1/completions answers with text.
 * Returns the model's name and its context length in tokens.
 */
async function probe(http: ServerHttp, expected: ServerExpectation, wish: string | undefined) {
  const { url } = http
  const cards = await modelCards(http)
  const names = cards.map(card => card?.id).filter(name => typeof name === 'string')
  const model = wish ?? names[0]
  if (model === undefined) throw garbage(url, '/v1/models names no model')
  const server = `OpenAI-compatible server at ${url}`
  const card = cards.find(each => each.id === model)
  if (card === undefined)
    throw unfitServer(
      server,
      `the server does not serve the model '${model}'; its models: ${names.join(', ')}`,
      'set engine.model to one of these',
    )
  const told = card.max_model_len
  const contextTokens = typeof told === 'number' && Number.isInteger(told) ? told : expected.contextTokens
  checkContext(server, contextTokens, expected, 'start the server with a longer context')
  const one = { model, prompt: 'a', max_tokens: 1, temperature: 1, top_p: 1, n: 1, stream: false }
  const reply = await http.post('/v1/completions', one, generateMs)
  if (reply.status === 404 || reply.status === 405) {
    const hint =
      'use a server with /v1/completions: an answer that a model has begun cannot be continued over /v1/chat/completions'
    throw unfitServer(server, 'the server does not have the endpoint /v1/completions', hint)
  }
  const { choices } = objectOf(url, '/v1/completions', reply)
  if (typeof (choices as { text?: unknown }[] | undefined)?.[0]?.text !== 'string') {
    throw garbage(url, 'the answer of /v1/completions has no choice with a text')
  }
  return { model, contextTokens }
}

/**
 * Error for training with an OpenAI-compatible server: it returns text, without the sampled ids and logprobs, and loads
 * no weights.
 */
export const notTrainable = (url: string): TroupeError =>
  new TroupeError('engine.not_trainable', {
    boundary: 'engine',
    retriable: false,
    message: `the OpenAI-compatible server at ${url} cannot be used for training: it returns text without the sampled ids and logprobs, and cannot load weights`,
    hint: 'train with --engine local, vllm:URL or sglang:URL; use this server with `troupe rollout` and `troupe eval`',
  })
