/**
 * Makes an engine of a function, for models that the user's own code drives.
 *
 * in   a function from a context to tokens, and the sizes that the scheduler plans with        out  an Engine
 * Invariant: the function's answers are checked and counted like a server's. If the function throws after an abort, the
 * request resolves without tokens; if it returns an answer after the abort, with that answer. The engine keeps no cache
 * between turns, so `release` has nothing to do.
 */
import type { EngineId } from '../../messages/ids'
import { policyVersion } from '../../messages/ids'
import { type Effects, systemEffects } from '../../runtime/effects'
import { TroupeError } from '../../runtime/errors'
import { checkSampled } from './checkSampled'
import type { Engine, EngineCapabilities, GenerateRequest, Generation } from './engine'
import { checkRequest } from './server/request'
import { ServerRun } from './server/run'

export interface Continuation {
  /** [n] sampled token ids. */
  readonly tokens: Int32Array
  /** [n] natural log of each token's probability, under the distribution sampled from. */
  readonly logprobs: Float32Array
  readonly text: string
  readonly finish: 'stop' | 'length'
}

type Sizes = Pick<EngineCapabilities, 'kvTokens' | 'blockTokens' | 'maxSequences' | 'contextTokens' | 'vocabulary'>
type Traits = Pick<EngineCapabilities, 'prefixSharing' | 'prioritySign' | 'trainable' | 'deterministic'>

export interface CustomEngineOptions extends Sizes, Partial<Traits> {
  readonly id: EngineId
  readonly model: string
  /**
   * Generates one turn. Called for at most `maxSequences` turns at once if a scheduler assigns them. It must return
   * or throw when the signal aborts, since the engine waits for it.
   */
  readonly generate: (request: GenerateRequest, signal: AbortSignal) => Promise<Continuation>
  /** Loads published weights. Without this function the model stays the same under every policy version. */
  readonly load?: (directory: string) => Promise<void>
  readonly fx?: Effects
}

interface Running {
  readonly aborter: AbortController
  readonly contextTokens: number
}

/**
 * Makes the engine. Its `generate` throws the errors of `checkRequest` (a context without room for an answer, a
 * repeated id, a token outside the vocabulary), `engine.lost` after closing, `engine.failed` if the function's result
 * is not a valid Continuation, and any error that the function throws before an abort.
 */
export function customEngine(options: CustomEngineOptions): Engine {
  const { id, model, generate, load, fx = systemEffects, ...rest } = options
  const traits: Traits = { prefixSharing: false, prioritySign: 0, trainable: true, deterministic: false }
  const capabilities: EngineCapabilities = { kind: 'custom', model, ...traits, ...rest }
  const running = new Map<string, Running>()
  const totals = { generatedTokens: 0, prefilledTokens: 0, busyMs: 0 }
  let version = policyVersion(0)
  let busySince = 0
  let closed = false
  const broken = (what: string) =>
    fault('engine.failed', true, `invalid answer of the function of engine ${id}: ${what}`)

  async function inTime(request: GenerateRequest, signal: AbortSignal): Promise<Generation> {
    const sampledBy = version
    const room = Math.min(request.maxTokens, capabilities.contextTokens - request.context.length)
    const run = new ServerRun(request, room, undefined, broken, fx)
    const nothing = { finish: 'aborted', text: '' } as const
    const take = async () => {
      const answer: Continuation = await generate({ ...request, maxTokens: room }, signal)
      checkContinuation(answer, capabilities.vocabulary, broken)
      run.begun()
      answer.tokens.forEach((token, i) => {
        run.take(token, answer.logprobs[i]!, sampledBy)
      })
      return { finish: run.isStopped ? 'stop' : answer.finish, text: answer.text } as const
    }
    const { finish, text } = await take().catch(thrown => {
      if (signal.aborted) return nothing
      throw thrown
    })
    totals.generatedTokens += run.tokens.length
    const counts = { cachedTokens: 0, preemptions: 0, queuedMs: 0 }
    return run.generation(async () => text, { finish, ...counts })
  }

  return {
    id,
    capabilities,
    lost: new Promise(() => {}),
    async generate(request, signal) {
      if (closed) throw fault('engine.lost', true, `engine ${id} is closed`)
      checkRequest(id, capabilities, request, running)
      const contextTokens = request.context.length
      const aborter = new AbortController()
      if (running.size === 0) busySince = fx.elapsed()
      running.set(request.requestId, { aborter, contextTokens })
      totals.prefilledTokens += contextTokens
      try {
        return await inTime(request, signal ? AbortSignal.any([signal, aborter.signal]) : aborter.signal)
      } finally {
        running.delete(request.requestId)
        if (running.size === 0) totals.busyMs += fx.elapsed() - busySince
      }
    },
    abort: async requestId => running.get(requestId)?.aborter.abort(),
    release: async () => {},
    async updateWeights(update) {
      await load?.(update.directory)
      version = update.version
    },
    async status() {
      const referencedTokens = [...running.values()].reduce((sum, { contextTokens }) => sum + contextTokens, 0)
      const { kvTokens } = capabilities
      const busyMs = totals.busyMs + (running.size === 0 ? 0 : fx.elapsed() - busySince)
      const held = { kvTokens, referencedTokens, cachedTokens: 0, running: running.size, waiting: 0, preemptions: 0 }
      const unseen = { cpuMs: 0, maxRssBytes: 0 }
      return { type: 'engine.status', at: fx.now(), engine: id, version, ...totals, ...held, ...unseen, busyMs }
    },
    async close() {
      closed = true
      for (const { aborter } of running.values()) aborter.abort()
    },
  }
}

function checkContinuation(answer: unknown, vocabulary: number, broken: (what: string) => Error): void {
  if (typeof answer !== 'object' || answer === null) throw broken(`the answer is ${answer} instead of an object`)
  const { tokens, logprobs, text, finish } = answer as Partial<Record<keyof Continuation, unknown>>
  const kindOf = (value: unknown) => Object.prototype.toString.call(value).slice(8, -1)
  if (kindOf(tokens) !== 'Int32Array') throw broken(`tokens are of type ${kindOf(tokens)}, and must be an Int32Array`)
  if (kindOf(logprobs) !== 'Float32Array')
    throw broken(`logprobs are of type ${kindOf(logprobs)}, and must be a Float32Array`)
  checkSampled(tokens, logprobs, vocabulary, broken)
  if (typeof text !== 'string') throw broken(`text is of type ${kindOf(text)}, and must be a string`)
  if (finish !== 'stop' && finish !== 'length')
    throw broken(`the answer ended with '${finish}' instead of 'stop' or 'length'`)
}

const fault = (code: string, retriable: boolean, message: string): TroupeError =>
  new TroupeError(code, { boundary: 'engine', retriable, message })
