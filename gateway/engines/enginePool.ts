/**
 * Distributes a gateway's calls over its engines: each call gets an engine that has room. Restarts lost engines.
 *
 * in   contexts to continue        out  generations; tokens as they are sampled
 * Invariant: an engine has at most `maxSequences` calls at once; the others wait in order, at most `mostWaiting` of
 * them. A call whose engine is lost continues on any free engine after the tokens that it has, so that what was
 * streamed stays part of the answer. A call fails after `mostTries` attempts with retriable errors, or at the first
 * other error.
 */
import type { Engine, GenerateRequest, Generation, PartialGeneration } from '../../backends/engines/engine'
import { GenerationLost } from '../../backends/engines/engine'
import type { EngineId } from '../../messages/ids'
import { concatArrays } from '../../runtime/concatArrays'
import { afterOn, type Effects } from '../../runtime/effects'
import { asError, TroupeError } from '../../runtime/errors'
import type { Log } from '../../runtime/log'
import { GatewayError } from '../gatewayError'
import { joined, wholeOf } from './joined'

/** An engine that can be started; `PlannedEngine` of actors/inference implements this interface. */
export interface StartableEngine {
  readonly id: EngineId
  start(signal?: AbortSignal): Promise<Engine>
}

export interface EnginePoolOptions {
  readonly engines: readonly StartableEngine[]
  readonly fx: Effects
  readonly log: Pick<Log, 'warn'>
  /** Upper bound on calls that wait for an engine. Default 4096. */
  readonly mostWaiting?: number
  /** Time that a call may wait for an engine, ms. Default 10 minutes. */
  readonly waitMs?: number
}

export type PoolRequest = Omit<GenerateRequest, 'resumedTokens'>
export type PoolGeneration = Omit<Generation, 'finish'> & {
  readonly engine: EngineId
  readonly finish: 'stop' | 'length'
  /** True if several attempts generated the answer; `text` is then at most the last attempt's part. */
  readonly isJoined: boolean
}

export interface EnginePool {
  /** `preferred`: engine that may hold the context's KV cache. */
  generate(
    request: PoolRequest,
    preferred: EngineId | undefined,
    onTokens: (tokens: Int32Array) => void,
    signal: AbortSignal,
  ): Promise<PoolGeneration>
  /** Shortest context of the engines, tokens. */
  readonly contextTokens: number
  readonly model: string
  /** `running`: calls that engines are generating. `waiting`: calls that wait for an engine. */
  load(): { readonly running: number; readonly waiting: number }
  close(): Promise<void>
}

interface Slot {
  readonly startable: StartableEngine
  engine: Engine | undefined
  running: number
}

interface Waiting {
  readonly preferred: EngineId | undefined
  give(slot: Slot): void
}

const mostTries = 3
const restartMs = 500
const longestRestartMs = 15_000

/** Starts all engines. @throws the error of the first that does not start */
export async function openEnginePool(options: EnginePoolOptions): Promise<EnginePool> {
  const { fx, log, mostWaiting = 4096, waitMs = 600_000 } = options
  const slots: Slot[] = options.engines.map(startable => ({ startable, engine: undefined, running: 0 }))
  const waiting = new Set<Waiting>()
  const stopped = new AbortController()

  function watch(slot: Slot, engine: Engine): void {
    slot.engine = engine
    void engine.lost.then(async reason => {
      if (stopped.signal.aborted || slot.engine !== engine) return
      slot.engine = undefined
      log.warn({ engine: slot.startable.id, err: reason }, 'an engine was lost')
      await engine.close().catch(() => {})
      await restart(slot)
    })
  }

  async function restart(slot: Slot): Promise<void> {
    for (let pause = restartMs; !stopped.signal.aborted; pause = Math.min(2 * pause, longestRestartMs)) {
      await new Promise<void>(resolve => afterOn(fx, pause, resolve))
      if (stopped.signal.aborted) return
      try {
        watch(slot, await slot.startable.start(stopped.signal))
        serve()
        return
      } catch (thrown) {
        log.warn({ engine: slot.startable.id, err: asError(thrown) }, 'an engine does not start')
      }
    }
  }

  const isFree = ({ engine, running }: Slot): boolean =>
    engine !== undefined && running < engine.capabilities.maxSequences

  function freeSlot(preferred: EngineId | undefined): Slot | undefined {
    const free = slots.filter(isFree)
    const home = free.find(slot => slot.startable.id === preferred)
    return (
      home ??
      free.reduce<Slot | undefined>((best, one) => (best && best.running <= one.running ? best : one), undefined)
    )
  }

  function serve(): void {
    for (const one of waiting) {
      const slot = freeSlot(one.preferred)
      if (slot === undefined) return
      waiting.delete(one)
      slot.running++
      one.give(slot)
    }
  }

  function slotFor(preferred: EngineId | undefined, signal: AbortSignal): Promise<Slot> {
    const slot = waiting.size === 0 ? freeSlot(preferred) : undefined
    if (slot !== undefined) {
      slot.running++
      return Promise.resolve(slot)
    }
    if (waiting.size >= mostWaiting) {
      const message = `${waiting.size} calls wait for an engine already: try again later`
      return Promise.reject(new GatewayError({ kind: 'busy', code: 'too_many_calls', message }))
    }
    return new Promise((resolve, reject) => {
      const end = (error?: Error) => {
        cancel()
        signal.removeEventListener('abort', onAbort)
        waiting.delete(one)
        if (error !== undefined) reject(error)
      }
      const one: Waiting = {
        preferred,
        give(given) {
          end()
          resolve(given)
        },
      }
      const onAbort = () => end(asError(signal.reason))
      const cancel = afterOn(fx, waitMs, () =>
        end(
          new GatewayError({
            ...{ kind: 'unavailable', code: 'no_engine' },
            message: `no running engine had room for the call within ${waitMs} ms: try again later`,
          }),
        ),
      )
      signal.addEventListener('abort', onAbort)
      waiting.add(one)
      serve()
    })
  }

  try {
    const started = await Promise.allSettled(slots.map(async slot => watch(slot, await slot.startable.start())))
    const fault = started.find(one => one.status === 'rejected')
    if (fault !== undefined) throw fault.reason
  } catch (thrown) {
    await close()
    throw thrown
  }

  async function close(): Promise<void> {
    stopped.abort()
    await Promise.all(slots.map(async slot => slot.engine?.close().catch(() => {})))
  }

  const capabilities = slots.map(slot => slot.engine!.capabilities)
  return {
    contextTokens: Math.min(...capabilities.map(one => one.contextTokens)),
    model: capabilities[0]!.model,
    load: () => ({ running: slots.reduce((sum, slot) => sum + slot.running, 0), waiting: waiting.size }),
    close,
    async generate(request, preferred, onTokens, signal) {
      const parts: PartialGeneration[] = []
      for (let tries = 1; ; tries++) {
        const slot = await slotFor(preferred, signal)
        const engine = slot.engine!
        try {
          const had = parts.reduce((sum, part) => sum + part.tokens.length, 0)
          const context =
            had === 0 ? request.context : concatArrays(Int32Array, [request.context, ...parts.map(part => part.tokens)])
          const wanted = { ...request, context, resumedTokens: had, maxTokens: request.maxTokens - had }
          const g = await (engine.stream?.(wanted, onTokens, signal) ?? engine.generate(wanted, signal))
          if (g.finish === 'aborted')
            throw new TroupeError('engine.aborted', {
              boundary: 'engine',
              retriable: true,
              message: `engine ${engine.id} aborted the generation in attempt ${tries} of ${mostTries}`,
            })
          if (parts.length > 0)
            return { ...joined([...parts, g], g), finish: g.finish, engine: engine.id, isJoined: true }
          return generationOf(g, g.finish, engine.id)
        } catch (thrown) {
          const isRetriable = thrown instanceof TroupeError && thrown.retriable && !signal.aborted
          if (!isRetriable || tries >= mostTries) throw thrown
          if (thrown instanceof GenerationLost && thrown.partial.tokens.length > 0) parts.push(thrown.partial)
          const whole = wholeOf(parts, request)
          if (whole !== undefined) return { ...whole, engine: engine.id, isJoined: true }
          if (thrown.code === 'engine.lost' && slot.engine === engine) await Promise.race([engine.lost, pause(fx)])
        } finally {
          slot.running--
          serve()
        }
      }
    },
  }
}

/** Converts an answer of one attempt, field by field: callFacts.ts says why it does not spread `g`. */
function generationOf(g: Generation, finish: PoolGeneration['finish'], engine: EngineId): PoolGeneration {
  return {
    tokens: g.tokens,
    logprobs: g.logprobs,
    text: g.text,
    finish,
    segments: g.segments,
    cachedTokens: g.cachedTokens,
    preemptions: g.preemptions,
    timing: g.timing,
    engine,
    isJoined: false,
    ...(g.entropies === undefined ? {} : { entropies: g.entropies }),
  }
}

const pause = (fx: Effects) => new Promise<void>(resolve => afterOn(fx, restartMs, resolve))
