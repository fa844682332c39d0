/**
 * The vLLM engine: a server that somebody else has started, over its HTTP API.
 *
 * in   generate, abort, new weights        out  generations, as token ids with logprobs under the distribution sampled from
 * Invariant: every `generate` settles: with its answer, with what it had when it was aborted, or with an error; with
 * `engine.lost` when the server is gone. Each token is counted to the weights that it was sampled under: those change
 * only while the server is paused, after every earlier token has arrived.
 * What vLLM does not tell: preemptions of one request (its status has their sum), and KV that is only cached.
 */
import type { EngineId } from '../../messages/ids'
import { type PolicyVersion, policyVersion } from '../../messages/ids'
import { type Effects, systemEffects } from '../effects'
import { type Engine, type EngineCapabilities, type GenerateRequest, type Generation, GenerationLost } from '../engine'
import { asError, TroupeError } from '../errors'
import { servedWeights } from './servedWeights'
import { type ServerHealthOptions, serverHealth } from './serverHealth'
import { garbage, messageOf, serverHttp } from './serverHttp'
import { asFailure, badRequest, checkRequest, Gate, wanted } from './serverRequest'
import { completionBody, type Piece, pieceOf } from './vllmCompletion'
import { vllmMetrics } from './vllmMetrics'
import { probeVllm, type VllmExpectation, type VllmTraits } from './vllmProbe'
import { updateVllm } from './vllmWeights'

export interface VllmEngineOptions {
  readonly id: EngineId
  /** http://HOST:PORT, or https. */
  readonly url: string
  readonly expected: VllmExpectation
  /** What the server was given as --api-key. */
  readonly token?: string
  /** A turn that has begun and gives no token for so long is given up. Default 120 s; not counted while weights change. */
  readonly stallMs?: number
  /** A turn may wait so long for its first token. Default 600 s. */
  readonly firstTokenMs?: number
  readonly health?: ServerHealthOptions
  readonly fx?: Effects
}

export interface VllmEngine extends Engine {
  readonly traits: VllmTraits
  /** `generate`, with the tokens as they come. */
  stream(request: GenerateRequest, onTokens: (tokens: Int32Array) => void, signal?: AbortSignal): Promise<Generation>
}

interface Running {
  readonly aborter: AbortController
  readonly tokens: number[]
  readonly logprobs: number[]
  readonly segments: { policyVersion: PolicyVersion; start: number; end: number }[]
}

const statusMs = 30_000

/** @throws TroupeError engine.unfit (not retriable), engine.lost, engine.timeout, engine.failed */
export async function startVllmEngine(options: VllmEngineOptions): Promise<VllmEngine> {
  const { id, url, expected, stallMs = 120_000, firstTokenMs = 600_000, fx = systemEffects } = options
  const http = serverHttp(url, options.token)
  const traits = await probeVllm(http, expected).catch(thrown => {
    http.close()
    throw thrown
  })
  const capabilities: EngineCapabilities = {
    kind: 'vllm',
    model: traits.servedName,
    kvTokens: traits.kvTokens,
    blockTokens: traits.blockTokens,
    maxSequences: traits.maxSequences,
    contextTokens: traits.contextTokens,
    vocabulary: expected.vocabulary,
    prefixSharing: traits.prefixSharing,
    prioritySign: traits.prioritySign,
    trainable: traits.processedLogprobs && traits.takesWeights,
    deterministic: false,
  }
  const health = serverHealth(http, options.health)
  const running = new Map<string, Running>()
  const gate = new Gate()
  const zero = policyVersion(-1)
  let version = zero
  let ended: Error | undefined
  let busySince = 0
  let busyMs = 0
  void health.lost.then(end)

  function end(error: Error): void {
    ended ??= error
    for (const { aborter } of running.values()) aborter.abort(ended)
  }

  function take(into: Running, { tokens, logprobs }: Piece): void {
    if (tokens.length === 0) return
    const start = into.tokens.length
    for (const token of tokens) into.tokens.push(token)
    for (const logprob of logprobs) into.logprobs.push(Math.min(0, logprob))
    const last = into.segments.at(-1)
    if (last?.policyVersion === version) last.end = into.tokens.length
    else into.segments.push({ policyVersion: version, start, end: into.tokens.length })
  }

  const parts = ({ tokens, logprobs, segments }: Running) => ({
    tokens: Int32Array.from(tokens),
    logprobs: Float32Array.from(logprobs),
    segments,
  })

  async function answer(
    request: GenerateRequest,
    run: Running,
    queuedAt: number,
    onTokens: ((tokens: Int32Array) => void) | undefined,
  ): Promise<Generation> {
    const dog = gate.watchdog(stallMs, firstTokenMs, url, error => run.aborter.abort(error))
    let firstTokenAt = 0
    let finish: Generation['finish'] | undefined
    let cachedTokens = 0
    let queuedMs = 0
    try {
      const maxTokens = Math.min(request.maxTokens, traits.contextTokens - request.context.length)
      const body = completionBody(traits, request, maxTokens)
      const reply = await http.stream('/v1/completions', body, firstTokenMs, run.aborter.signal)
      if (reply.status !== 200) throw refusal(url, reply.status, await reply.text())
      for await (const line of reply.lines) {
        if (line === '[DONE]') continue // to the end, or the connection could not be kept
        const piece = pieceOf(url, expected.vocabulary, line)
        dog.fed()
        if (piece.tokens.length > 0 && firstTokenAt === 0) firstTokenAt = fx.now()
        take(run, piece)
        if (onTokens !== undefined && piece.tokens.length > 0) onTokens(Int32Array.from(piece.tokens))
        finish = piece.finish ?? finish
        cachedTokens = piece.cachedTokens ?? cachedTokens
        queuedMs = piece.queuedMs ?? queuedMs
      }
      if (finish === undefined) throw garbage(url, 'a stream that ends before its generation does')
    } catch (thrown) {
      // What came after the last token is not missed.
      if (finish === undefined && run.aborter.signal.reason !== wanted)
        throw await why(asError(run.aborter.signal.reason ?? thrown))
    } finally {
      dog.stop()
    }
    const endedAt = fx.now()
    const whole = parts(run)
    const { context, resumedTokens } = request
    const own = Int32Array.from([...context.subarray(context.length - resumedTokens), ...whole.tokens])
    return {
      ...whole,
      text: own.length === 0 ? '' : await expected.decode(own),
      finish: finish ?? 'aborted',
      cachedTokens,
      preemptions: 0,
      timing: { queuedAt, startedAt: queuedAt + queuedMs, firstTokenAt: firstTokenAt || endedAt, endedAt },
    }
  }

  /** An error of a request may be the server's end: then it is said so. */
  async function why(error: Error): Promise<Error> {
    if (ended !== undefined) return ended
    if (error instanceof TroupeError && !error.retriable) return error
    return (await health.check()) ?? asFailure(url, error)
  }

  async function generate(request: GenerateRequest, signal?: AbortSignal, onTokens?: (tokens: Int32Array) => void) {
    const { requestId, context } = request
    if (ended !== undefined) throw ended
    if (signal?.aborted) throw asError(signal.reason)
    if (running.has(requestId)) throw badRequest(`request ${requestId} is already running on ${id}`)
    checkRequest(id, capabilities, context)
    const run: Running = { aborter: new AbortController(), tokens: [], logprobs: [], segments: [] }
    const onAbort = () => run.aborter.abort(wanted)
    signal?.addEventListener('abort', onAbort, { once: true })
    if (running.size === 0) busySince = fx.elapsed()
    running.set(requestId, run)
    try {
      return await answer(request, run, fx.now(), onTokens)
    } catch (thrown) {
      // What it had is the turn's own: it goes on from there, elsewhere.
      throw run.tokens.length === 0 ? thrown : new GenerationLost(asError(thrown), parts(run))
    } finally {
      signal?.removeEventListener('abort', onAbort)
      running.delete(requestId)
      if (running.size === 0) busyMs += fx.elapsed() - busySince
    }
  }

  return {
    id,
    capabilities,
    traits,
    lost: health.lost,
    generate: (request, signal) => generate(request, signal),
    stream: (request, onTokens, signal) => generate(request, signal, onTokens),
    abort: async requestId => running.get(requestId)?.aborter.abort(wanted),
    // What nobody refers to is the server's to forget.
    release: async () => {},
    async updateWeights(update) {
      if (ended !== undefined) throw ended
      const asItIs = update.digest === '' && update.version === 0
      if (!traits.takesWeights && !asItIs) throw noUpdates(url)
      const open = gate.close()
      try {
        const onLoaded = () => {
          version = update.version
        }
        if (traits.takesWeights) {
          const directory = await servedWeights(update.directory, update.digest)
          await updateVllm(http, { ...update, directory }, onLoaded)
        } else onLoaded()
      } catch (thrown) {
        throw await why(asError(thrown))
      } finally {
        open()
      }
    },
    async status() {
      if (ended !== undefined) throw ended
      const reply = await http.get('/metrics', statusMs)
      if (reply.status !== 200) throw garbage(url, `/metrics says ${reply.status}`)
      const m = vllmMetrics(url, reply.text)
      return {
        type: 'engine.status',
        at: fx.now(),
        engine: id,
        version,
        kvTokens: m.kvTokens,
        referencedTokens: Math.round(m.usedShare * m.kvTokens),
        cachedTokens: 0,
        running: m.running,
        waiting: m.waiting,
        generatedTokens: m.generatedTokens,
        prefilledTokens: Math.max(0, m.promptTokens - m.cachedPromptTokens),
        preemptions: m.preemptions,
        busyMs: busyMs + (running.size === 0 ? 0 : fx.elapsed() - busySince),
        cpuMs: 0,
        maxRssBytes: 0,
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

function refusal(url: string, status: number, text: string): TroupeError {
  const message = `${url} says ${status}: ${messageOf(text)}`
  const code =
    status === 400 && /context length|max_model_len/i.test(text) ? 'engine.context_exceeded' : 'engine.failed'
  const hint = status === 401 ? 'name the environment variable with its --api-key in engine.apiKey' : undefined
  return new TroupeError(code, {
    boundary: 'engine',
    // Another moment may be better for a server that is overloaded or failing, not for a request that it does not take.
    retriable: status >= 500 || status === 429,
    message,
    ...(hint === undefined ? {} : { hint }),
  })
}

const noUpdates = (url: string): TroupeError =>
  new TroupeError('engine.no_updates', {
    boundary: 'engine',
    retriable: false,
    message: `the vLLM server at ${url} takes no new weights: it runs without its development endpoints`,
    hint: 'start it with VLLM_SERVER_DEV_MODE=1 in its environment, where only you can reach it',
  })
