/**
 * The local engine: Troupe's own process around a transformers model, over one gRPC stream.
 *
 * in   generate, abort, release, new weights        out  generations, the engine's status
 * Invariant: every `generate` settles: with its answer (a partial one if it is aborted while it runs), with a refusal,
 * with the signal's reason if the signal was aborted before the call, or with `engine.lost` when the process or its
 * stream is gone. Writes keep their order while the stream is blocked.
 */
import type { EngineStatus } from '../../../messages/commands'
import { type EngineId, policyVersion } from '../../../messages/ids'
import { systemEffects } from '../../../runtime/effects'
import { asError, TroupeError } from '../../../runtime/errors'
import { bytesOfTokens, floatsOfBytes, tokensOfBytes } from '../../../runtime/tokenBytes'
import { type PolicyProcessOptions, startPolicyProcess } from '../../policyProcess'
import type { Engine, EngineCapabilities, GenerateRequest, Generation } from '../engine'

export interface LocalEngineOptions extends Omit<PolicyProcessOptions, 'serve' | 'options' | 'template'> {
  readonly id: EngineId
  /** Upper bound on the KV cache in tokens, for running sequences and those kept for a trajectory's next turn. */
  readonly kvTokens?: number
  readonly blockTokens?: number
  readonly maxSequences?: number
  /** Upper bound on prompt and response together, in tokens. Default: what the model supports, at most 4096. */
  readonly contextTokens?: number
  readonly deterministic?: boolean
  /** True to return, beside the logprobs, the entropies of the distributions that tokens are drawn from. */
  readonly entropies?: boolean
  readonly device?: string
  readonly dtype?: string
  /** Number of CPU threads that torch uses. */
  readonly threads?: number
  /** Upper bound on the time that a load of new weights takes, in milliseconds. Default: 600 s. */
  readonly weightUpdateMs?: number
  /** Policy version of the weights in `modelDirectory`. */
  readonly version?: number
}

interface Finished {
  readonly tokens: Buffer
  readonly logprobs: Buffer
  readonly entropies: Buffer
  readonly text: string
  readonly finish: Generation['finish']
  readonly segments: readonly { readonly policyVersion: number; readonly start: number; readonly end: number }[]
  readonly cachedTokens: number
  readonly preemptions: number
  readonly queuedAt: number
  readonly startedAt: number
  readonly firstTokenAt: number
  readonly endedAt: number
}

interface EngineEvent {
  readonly requestId: string
  readonly event: 'finished' | 'refused' | 'partial'
  readonly finished?: Finished
  readonly refused?: { readonly code: string; readonly message: string }
  readonly partial?: { readonly tokens: Buffer; readonly text: string }
}

type EngineInfo = Pick<
  EngineCapabilities,
  'model' | 'kvTokens' | 'blockTokens' | 'maxSequences' | 'contextTokens' | 'vocabulary' | 'deterministic'
>

export interface LocalEngine extends Engine {
  readonly pid: number
  /** Generates as `generate` does, and passes on tokens and their text as they are sampled. */
  stream(
    request: GenerateRequest,
    onPartial: (tokens: Int32Array, text: string) => void,
    signal?: AbortSignal,
  ): Promise<Generation>
}

interface Pending {
  readonly resolve: (generation: Generation) => void
  readonly reject: (error: Error) => void
  readonly onPartial: ((tokens: Int32Array, text: string) => void) | undefined
}

/** Requests that the scheduler may send beyond those that the process decodes at once: a share of these, rounded up. */
const waitingShare = 1 / 8
const statusTimeoutMs = 30_000
const usualUpdateMs = 600_000

/**
 * Starts the engine's process and connects to it. @throws TroupeError process.start_failed, process.start_timeout and
 * process.no_python as `startPolicyProcess`; engine.lost and engine.timeout if the started process does not answer
 * `Describe`
 */
export async function startLocalEngine(options: LocalEngineOptions): Promise<LocalEngine> {
  const { id, kvTokens, blockTokens, maxSequences, contextTokens, deterministic, device, dtype, threads } = options
  const { modelDirectory, python, startTimeoutMs, signal, log, version, entropies, env } = options
  const process = await startPolicyProcess({
    serve: 'engine',
    modelDirectory,
    options: {
      ...{
        kvTokens,
        blockTokens,
        maxSequences,
        contextTokens,
        deterministic,
        entropies,
        device,
        dtype,
        threads,
        version,
      },
    },
    ...(python === undefined ? {} : { python }),
    ...(startTimeoutMs === undefined ? {} : { startTimeoutMs }),
    ...(signal === undefined ? {} : { signal }),
    ...(env === undefined ? {} : { env }),
    ...(log === undefined ? {} : { log }),
  })
  const { client } = process
  const info = await client.unary<EngineInfo>('Describe', {}, statusTimeoutMs).catch(async thrown => {
    await process.close()
    throw thrown
  })
  const { model, vocabulary } = info
  const capabilities: EngineCapabilities = {
    kind: 'local',
    model,
    kvTokens: info.kvTokens,
    blockTokens: info.blockTokens,
    // The process takes a few more requests than it decodes at once, so that a waiting request replaces a finished one
    // in the next decoding step, without a round trip over the bus to the scheduler.
    maxSequences: info.maxSequences + Math.ceil(info.maxSequences * waitingShare),
    contextTokens: info.contextTokens,
    vocabulary,
    // The engine computes a group's prompt once, but each member's copy of its keys and values takes KV cache.
    prefixSharing: false,
    prioritySign: -1,
    trainable: true,
    deterministic: info.deterministic,
  }

  const pending = new Map<string, Pending>()
  const outbox: object[] = []
  let draining = false
  let ended: Error | undefined
  const calls = client.stream<object, EngineEvent>('Generate')

  function write(command: object): void {
    if (ended !== undefined) return
    if (draining) outbox.push(command)
    else draining = !calls.write(command)
  }
  calls.on('drain', () => {
    draining = false
    while (!draining && outbox.length > 0) draining = !calls.write(outbox.shift()!)
  })
  calls.on('data', (event: EngineEvent) => settle(event))

  const fail = (error: Error) => {
    ended ??= error
    outbox.length = 0
    for (const request of pending.values()) request.reject(ended)
    pending.clear()
  }
  const lost = new Promise<Error>(resolve => {
    void process.lost.then(resolve)
    // A broken stream counts as the loss of the engine, even if the process lives: the supervisor ends the process and
    // starts another.
    const broken = (error: Error) => setTimeout(resolve, 1_000, lostError(id, error))
    calls.on('error', broken)
    calls.on('end', () => broken(new Error('the engine closed its stream, which it keeps open while it works')))
  })
  void lost.then(fail)

  function settle({ requestId, finished, refused, partial }: EngineEvent): void {
    const request = pending.get(requestId)
    if (request === undefined) return
    if (partial) {
      request.onPartial?.(tokensOfBytes(partial.tokens), partial.text)
      return
    }
    pending.delete(requestId)
    if (refused) request.reject(refusal(id, refused))
    else if (finished) request.resolve(generationOf(finished))
  }

  function generate(request: GenerateRequest, signal?: AbortSignal, onPartial?: Pending['onPartial']) {
    return new Promise<Generation>((resolve, reject) => {
      if (ended !== undefined) return reject(ended)
      if (signal?.aborted) return reject(asError(signal.reason))
      const { requestId } = request
      if (pending.has(requestId)) {
        const message = `request ${requestId} is already running on ${id}`
        return reject(new TroupeError('engine.bad_request', { boundary: 'engine', retriable: false, message }))
      }
      const onAbort = () => write({ abort: { requestId } })
      signal?.addEventListener('abort', onAbort, { once: true })
      const settled = () => signal?.removeEventListener('abort', onAbort)
      pending.set(requestId, {
        resolve: generation => {
          settled()
          resolve(generation)
        },
        reject: error => {
          settled()
          reject(error)
        },
        onPartial,
      })
      write({ generate: commandOf(request, onPartial !== undefined) })
    })
  }

  return {
    id,
    capabilities,
    pid: process.pid,
    lost,
    generate: (request, signal) => generate(request, signal),
    stream: (request, onPartial, signal) => generate(request, signal, onPartial),
    async abort(requestId) {
      write({ abort: { requestId } })
    },
    async release(trajectory) {
      write({ release: { trajectory } })
    },
    async updateWeights(update) {
      await client.unary('UpdateWeights', update, options.weightUpdateMs ?? usualUpdateMs)
    },
    async status(): Promise<EngineStatus> {
      const reply = await client.unary<EngineStatus>('Status', {}, statusTimeoutMs)
      return {
        ...reply,
        type: 'engine.status',
        at: systemEffects.now(),
        engine: id,
        version: policyVersion(reply.version),
      }
    },
    async close() {
      calls.cancel()
      await process.close()
    },
  }
}

const lostError = (id: EngineId, cause: Error) =>
  new TroupeError('engine.lost', { boundary: 'engine', retriable: true, message: `${id}: ${cause.message}`, cause })

function refusal(id: EngineId, { code, message }: { readonly code: string; readonly message: string }): TroupeError {
  const hint = code === 'engine.context_exceeded' ? 'lower limits.contextTokens or raise engine.kvTokens' : undefined
  return new TroupeError(code, {
    boundary: 'engine',
    retriable: code === 'engine.busy' || code === 'engine.not_finite',
    message: `engine ${id} did not answer the request: ${message}`,
    ...(hint === undefined ? {} : { hint }),
  })
}

function commandOf(request: GenerateRequest, stream: boolean): object {
  const { sampling, context, ...rest } = request
  return { ...rest, ...sampling, context: bytesOfTokens(context), stream }
}

function generationOf(finished: Finished): Generation {
  const { text, finish, cachedTokens, preemptions, queuedAt, startedAt, firstTokenAt, endedAt } = finished
  return {
    tokens: tokensOfBytes(finished.tokens),
    logprobs: floatsOfBytes(finished.logprobs),
    ...(finished.entropies.length === 0 ? {} : { entropies: floatsOfBytes(finished.entropies) }),
    text,
    finish,
    segments: finished.segments.map(({ policyVersion: version, start, end }) => ({
      policyVersion: policyVersion(version),
      start,
      end,
    })),
    cachedTokens,
    preemptions,
    timing: { queuedAt, startedAt, firstTokenAt, endedAt },
  }
}
