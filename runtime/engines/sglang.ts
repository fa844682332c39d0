/**
 * The SGLang engine: a server that somebody else has started, over its native HTTP API.
 *
 * in   generate, abort, new weights, sleep and wake        out  generations, as token ids with logprobs and the weights that sampled them
 * Invariant: every `generate` settles: with its answer, with what it had when it was aborted, or with an error; with
 * `engine.lost` when the server is gone. A token counts to the weights that the server names with it; weights that this
 * engine did not give it are an error. It has been held against a strict server of ours, and has never met a real SGLang.
 * A generation is one leg on the server, or more: where a pause ends what runs, and at an end that only the model's files name.
 */
import type { EngineId } from '../../messages/ids'
import { type PolicyVersion, policyVersion } from '../../messages/ids'
import { type Effects, systemEffects } from '../effects'
import { type Engine, type EngineCapabilities, type GenerateRequest, type Generation, GenerationLost } from '../engine'
import { asError, TroupeError } from '../errors'
import { servedWeights } from './servedWeights'
import type { ServerExpectation } from './serverExpectation'
import { type ServerHealthOptions, serverHealth } from './serverHealth'
import { garbage, messageOf, serverHttp } from './serverHttp'
import { asFailure, badRequest, checkRequest, Gate, wanted } from './serverRequest'
import { generateBody, pieceOfEvent, refused } from './sglangGenerate'
import { sglangLoads } from './sglangLoads'
import { probeSglang, type SglangTraits } from './sglangProbe'
import { releaseSglang, resumeSglang, type SglangPause, updateSglang } from './sglangWeights'

export interface SglangEngineOptions {
  readonly id: EngineId
  /** http://HOST:PORT, or https. */
  readonly url: string
  readonly expected: ServerExpectation
  /** What the server was given as --api-key. */
  readonly token?: string
  /** How the server is paused for new weights. Default `abort`; the others need a server that tells spans of weights. */
  readonly pause?: SglangPause
  /** A turn that has begun and gives no token for so long is given up. Default 120 s; not counted while weights change. */
  readonly stallMs?: number
  /** A turn may wait so long for its first token. Default 600 s. */
  readonly firstTokenMs?: number
  readonly health?: ServerHealthOptions
  readonly fx?: Effects
}

export interface SglangEngine extends Engine {
  readonly traits: SglangTraits
  /** `generate`, with the tokens as they come. */
  stream(request: GenerateRequest, onTokens: (tokens: Int32Array) => void, signal?: AbortSignal): Promise<Generation>
  sleep(): Promise<void>
  wake(): Promise<void>
}

interface Running {
  readonly aborter: AbortController
  readonly tokens: number[]
  readonly logprobs: number[]
  readonly segments: { policyVersion: PolicyVersion; start: number; end: number }[]
  cachedTokens: number
  retractions: number
  firstTokenAt: number
}

/** One abort is not enough: a request that has not reached the scheduler yet is not there to be aborted. */
const abortAgainMs = 1000
const abortGiveUpMs = 5000
const abortCallMs = 5000
/** A turn does not run over more updates than these. */
const rememberedLabels = 64

/** @throws TroupeError engine.unfit (not retriable), engine.lost, engine.timeout, engine.failed */
export async function startSglangEngine(options: SglangEngineOptions): Promise<SglangEngine> {
  const { id, url, expected, pause = 'abort', stallMs = 120_000, firstTokenMs = 600_000, fx = systemEffects } = options
  const http = serverHttp(url, options.token)
  const traits = await probeSglang(http, expected).catch(thrown => {
    http.close()
    throw thrown
  })
  if (pause !== 'abort' && !traits.tellsSpans) {
    http.close()
    throw noSpans(url, pause)
  }
  const capabilities: EngineCapabilities = {
    kind: 'sglang',
    model: traits.servedName,
    kvTokens: traits.kvTokens,
    blockTokens: traits.blockTokens,
    maxSequences: traits.maxSequences,
    contextTokens: traits.contextTokens,
    vocabulary: expected.vocabulary,
    prefixSharing: traits.prefixSharing,
    // When KV runs out it takes back who has generated least, whatever the priority.
    prioritySign: 0,
    trainable: traits.processedLogprobs && traits.takesWeights,
    deterministic: traits.takesSeed,
  }
  // /health generates a token in newer versions: it fails while the server is paused.
  const health = serverHealth(http, { path: '/ping', ...options.health })
  const running = new Map<string, Running>()
  const gate = new Gate()
  const totals = { generatedTokens: 0, prefilledTokens: 0, preemptions: 0 }
  let version = policyVersion(-1)
  /** What the server calls weights, and their version here. */
  const versions = new Map<string, PolicyVersion>([[traits.weightLabel, version]])
  let labels = 0
  let newest: { readonly directory: string; readonly label: string } | undefined
  let asleep: readonly string[] | undefined
  let awake: () => void = () => {}
  let ended: Error | undefined
  let busySince = 0
  let busyMs = 0
  void health.lost.then(end)

  function end(error: Error): void {
    ended ??= error
    for (const { aborter } of running.values()) aborter.abort(ended)
  }

  function versionOf(label: string): PolicyVersion {
    const known = traits.takesWeights ? versions.get(label) : version
    if (known !== undefined) return known
    throw garbage(url, `its weights are called '${label}': somebody else has changed them`)
  }

  function take(into: Running, token: number, logprob: number, sampledBy: PolicyVersion): void {
    into.tokens.push(token)
    into.logprobs.push(Math.min(0, logprob))
    const last = into.segments.at(-1)
    const length = into.tokens.length
    if (last?.policyVersion === sampledBy) last.end = length
    else into.segments.push({ policyVersion: sampledBy, start: length - 1, end: length })
  }

  const parts = ({ tokens, logprobs, segments }: Running) => ({
    tokens: Int32Array.from(tokens),
    logprobs: Float32Array.from(logprobs),
    segments,
  })

  type OnTokens = ((tokens: Int32Array) => void) | undefined

  /** null: it goes on in another leg. */
  async function leg(request: GenerateRequest, run: Running, onTokens: OnTokens): Promise<Generation['finish'] | null> {
    const { sampling, seed, priority } = request
    const context = [...request.context, ...run.tokens]
    const maxTokens = Math.min(request.maxTokens - run.tokens.length, traits.contextTokens - context.length)
    if (maxTokens <= 0) return 'length'
    // No name may begin with another: the server aborts by prefix.
    const rid = `${fx.unique()}.`
    const connection = new AbortController()
    const pauses = gate.closings
    const dog = gate.watchdog(stallMs, firstTokenMs, url, error => run.aborter.abort(error))
    const calling = callOff(rid, run.aborter.signal, connection)
    let taken = 0
    let told = false
    let finish: Generation['finish'] | null = null
    try {
      const asked = { rid, context, maxTokens, sampling, seed, priority }
      const body = generateBody(traits, asked)
      const reply = await http.stream('/generate', body, firstTokenMs, connection.signal)
      if (reply.status !== 200) throw refused(url, reply.status, messageOf(await reply.text()))
      for await (const line of reply.lines) {
        if (line === '[DONE]') continue // to the end, or the connection could not be kept
        const piece = pieceOfEvent(url, expected.vocabulary, taken, line)
        dog.fed()
        if (!told && piece.cachedTokens !== null) {
          told = true
          if (run.tokens.length === 0) run.cachedTokens = piece.cachedTokens
          totals.prefilledTokens += Math.max(0, context.length - piece.cachedTokens)
        }
        if (piece.tokens.length > 0 && run.firstTokenAt === 0) run.firstTokenAt = fx.now()
        piece.tokens.forEach((token, i) => {
          take(run, token, piece.logprobs[i]!, versionOf(piece.labels[i]!))
        })
        taken += piece.tokens.length
        totals.generatedTokens += piece.tokens.length
        if (onTokens !== undefined && piece.tokens.length > 0) onTokens(Int32Array.from(piece.tokens))
        if (piece.finish !== null) {
          finish = piece.finish
          run.retractions += piece.retractions
          totals.preemptions += piece.retractions
        }
      }
      if (finish === null) throw garbage(url, 'a stream that ends before its generation does')
    } catch (thrown) {
      // What came after the last token is not missed.
      if (finish === null && run.aborter.signal.reason !== wanted) throw asError(run.aborter.signal.reason ?? thrown)
      finish ??= 'aborted'
    } finally {
      dog.stop()
      calling.stop()
    }
    const last = run.tokens.at(-1)
    if (finish === 'aborted') {
      const ours = run.aborter.signal.aborted
      return !ours && (gate.closings !== pauses || gate.closed) ? null : 'aborted'
    }
    // SGLang looks at the length first.
    if (last !== undefined && sampling.stopTokens.includes(last)) return 'stop'
    return finish === 'stop' ? null : 'length'
  }

  /** Ends a leg on the server when its request is to end, and the connection when the server does not. */
  function callOff(rid: string, signal: AbortSignal, connection: AbortController): { stop(): void } {
    let timer: NodeJS.Timeout | undefined
    let began = 0
    const again = () => {
      if (systemEffects.elapsed() - began > abortGiveUpMs) return connection.abort(signal.reason)
      void http.post('/abort_request', { rid }, abortCallMs).catch(() => {}) // the next one, or the health, will tell
      timer = setTimeout(again, abortAgainMs)
    }
    const onAbort = () => {
      began = systemEffects.elapsed()
      again()
      if (signal.reason !== wanted) connection.abort(signal.reason)
    }
    if (signal.aborted) onAbort()
    else signal.addEventListener('abort', onAbort, { once: true })
    return {
      stop() {
        clearTimeout(timer)
        signal.removeEventListener('abort', onAbort)
      },
    }
  }

  async function answer(request: GenerateRequest, run: Running, onTokens: OnTokens): Promise<Generation> {
    const queuedAt = fx.now()
    let finish: Generation['finish'] | null = null
    try {
      while (finish === null) {
        await gate.passed(run.aborter.signal)
        finish = run.aborter.signal.reason === wanted ? 'aborted' : await leg(request, run, onTokens)
      }
    } catch (thrown) {
      throw await why(asError(thrown))
    }
    const endedAt = fx.now()
    const whole = parts(run)
    const { context, resumedTokens } = request
    const own = Int32Array.from([...context.subarray(context.length - resumedTokens), ...whole.tokens])
    return {
      ...whole,
      text: own.length === 0 ? '' : await expected.decode(own),
      finish,
      cachedTokens: run.cachedTokens,
      preemptions: run.retractions,
      timing: { queuedAt, startedAt: queuedAt, firstTokenAt: run.firstTokenAt || endedAt, endedAt },
    }
  }

  /** An error of a request may be the server's end: then it is said so. */
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
    const run: Running = {
      ...{ aborter: new AbortController(), tokens: [], logprobs: [], segments: [] },
      ...{ cachedTokens: 0, retractions: 0, firstTokenAt: 0 },
    }
    const onAbort = () => run.aborter.abort(wanted)
    signal?.addEventListener('abort', onAbort, { once: true })
    if (running.size === 0) busySince = fx.elapsed()
    running.set(requestId, run)
    try {
      return await answer(request, run, onTokens)
    } catch (thrown) {
      // What it had is the turn's own: it goes on from there, elsewhere.
      throw run.tokens.length === 0 ? thrown : new GenerationLost(asError(thrown), parts(run))
    } finally {
      signal?.removeEventListener('abort', onAbort)
      running.delete(requestId)
      if (running.size === 0) busyMs += fx.elapsed() - busySince
    }
  }

  /** Nothing is sent meanwhile. */
  async function whilePaused(change: () => Promise<void>): Promise<void> {
    if (ended !== undefined) throw ended
    try {
      await change()
    } catch (thrown) {
      throw await why(asError(thrown))
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
    updateWeights: update =>
      whilePaused(async () => {
        if (asleep !== undefined) throw asleepError(id)
        if (!traits.takesWeights) {
          if (update.digest !== '' || update.version !== 0) throw noUpdates(url)
          version = update.version
          return
        }
        if (pause === 'in_place' && !update.keepKv) throw keepsKv(url)
        const directory = await servedWeights(update.directory, update.digest)
        // A server that outlived a run may use the name already.
        const label = versions.has(String(update.version)) ? `${update.version}+${++labels}` : String(update.version)
        const open = gate.close()
        try {
          await updateSglang(http, { directory, label, keepKv: update.keepKv, pause }, () => {
            // What was sampled before may still be on its way, under an older label.
            versions.set(label, update.version)
            for (const oldest of [...versions.keys()].slice(0, -rememberedLabels)) versions.delete(oldest)
            version = update.version
            newest = { directory, label }
          })
        } finally {
          open()
        }
      }),
    sleep: () =>
      whilePaused(async () => {
        if (!traits.sleeps) throw noSleep(url)
        if (asleep !== undefined) return
        // Weights that were never loaded by us could not be loaded again.
        const tags = newest === undefined ? ['kv_cache'] : ['kv_cache', 'weights']
        const open = gate.close()
        await releaseSglang(http, tags).catch(thrown => {
          open()
          throw thrown
        })
        asleep = tags
        awake = open
      }),
    wake: () =>
      whilePaused(async () => {
        if (asleep === undefined) return
        await resumeSglang(http, asleep, asleep.includes('weights') ? newest : undefined)
        asleep = undefined
        awake()
      }),
    async status() {
      if (ended !== undefined) throw ended
      const { running: runs, waiting, usedTokens } = await sglangLoads(http)
      return {
        type: 'engine.status',
        at: fx.now(),
        engine: id,
        version,
        kvTokens: capabilities.kvTokens,
        referencedTokens: usedTokens,
        cachedTokens: 0,
        running: runs,
        waiting,
        ...totals,
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

const fault = (code: string, message: string, hint: string): TroupeError =>
  new TroupeError(code, { boundary: 'engine', retriable: false, message, hint })

const noSpans = (url: string, pause: SglangPause) =>
  fault(
    'engine.unfit',
    `the SGLang server at ${url} does not say which token is of which weights, which a pause by '${pause}' needs`,
    "leave the pause at 'abort', or use a version of SGLang whose answers have weight_versions",
  )

const keepsKv = (url: string) =>
  fault(
    'engine.bad_request',
    `the SGLang server at ${url} is paused in place, which keeps the KV of older weights, and the recipe forgets it`,
    "set engine.pause to 'abort' or 'retract'",
  )

const noUpdates = (url: string) =>
  fault(
    'engine.no_updates',
    `the SGLang server at ${url} takes no new weights`,
    'use a version of SGLang with /pause_generation, /update_weights_from_disk and weight_version in its answers',
  )

const noSleep = (url: string) =>
  fault(
    'engine.no_sleep',
    `the SGLang server at ${url} cannot give its memory back`,
    'start it with --enable-memory-saver',
  )

const asleepError = (id: EngineId): TroupeError =>
  new TroupeError('engine.asleep', {
    boundary: 'engine',
    retriable: true,
    message: `${id} sleeps: it has no memory to load weights into`,
    hint: 'wake it first',
  })
