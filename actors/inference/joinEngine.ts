/**
 * An engine takes part in a run: the scheduler hears of it, and an inference actor drives it.
 *
 * in   an open engine, whatever stands behind it        out  engine.joined, what inference says of it, engine.left
 * Invariant: engine.joined is in the log before the engine is driven, engine.left after it is not any more. An engine that
 * was sent away, because nobody had heard of it or it failed turn after turn, or that could not take new weights, takes
 * part again when it has rested. The engine stays the caller's: it is neither watched nor closed here.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Engine } from '../../backends/engines/engine'
import type { EngineLeft } from '../../messages/facts'
import { policyVersion } from '../../messages/ids'
import type { Embedded } from '../../runtime/embed'
import { asError, TroupeError } from '../../runtime/errors'
import type { CloseOptions, Host, Port } from '../../runtime/host/host'
import { fenced } from '../ownership/fencing'
import { restAfter } from '../scheduling/circuitBreaker'
import { type InferenceRequest, inference } from './inference'
import { inferenceKey, inferencePort } from './inferencePort'

export interface JoinOptions {
  /** Samples under this policy already. Default: under none before `weights.published` was applied. */
  readonly version?: number
  /** Keep KV of older weights when new ones are loaded. Default false. */
  readonly keepKv?: boolean
  /** It was sent away and cannot join again. Default: it is logged. */
  readonly onFailed?: (error: Error) => void
}

export interface Joined {
  /** Stops driving it; who ends a run needs to say no more. */
  close(options?: CloseOptions): Promise<void>
  /** Stops driving it and says so: the scheduler gives its turns to others when they are asked again. */
  leave(reason: string): Promise<void>
}

/** In a row; then it is a failure of whoever drives it. */
const mostFailedUpdates = 10

/** Resolves when the engine is driven. Join it again only after `leave`. */
export async function joinEngine(
  { journal, fx, host, log }: Pick<Embedded, 'journal' | 'fx' | 'host' | 'log'>,
  engine: Engine,
  options: JoinOptions = {},
): Promise<Joined> {
  const { id, capabilities } = engine
  const { onFailed = (error: Error) => log.error({ engine: id, err: error }, 'an engine could not join again') } =
    options
  const port = inferencePort(engine, options.keepKv ?? false, fx)
  /** What it was opened with, until it is given others. */
  let version = options.version === undefined ? undefined : policyVersion(options.version)
  /** Why it does not say how it is. */
  let silence: Error | undefined
  let failedUpdates = 0
  const perform: Port<InferenceRequest> = async (request, signal) => {
    try {
      const answer = await port(request, signal)
      if (request.kind === 'update') {
        version = undefined
        failedUpdates = 0
      }
      if (request.kind === 'status') silence = undefined
      return answer
    } catch (thrown) {
      if (signal.aborted) throw thrown
      if (request.kind === 'update' && mayTryAgain(thrown) && ++failedUpdates < mostFailedUpdates) {
        await leaveFor(`it could not take version ${request.weights.version}: ${thrown.message}`)
        return undefined
      }
      // Who does not say how it is is not heard of, and the scheduler sends it away: no reason to end all that runs beside it.
      if (request.kind !== 'status') throw thrown
      if (silence === undefined) log.warn({ engine: id, err: thrown }, 'an engine does not say how it is')
      silence = asError(thrown)
      return undefined
    }
  }

  let driving: Host | undefined
  /** Where its latest engine.joined stands. */
  let joinedAt = -1
  const over = new AbortController()

  async function join(): Promise<void> {
    const { kind, model, kvTokens, blockTokens, maxSequences, contextTokens, prefixSharing, prioritySign } =
      capabilities
    const joined = { kind, model, kvTokens, blockTokens, maxSequences, contextTokens, prefixSharing, prioritySign }
    const [at] = await journal.append([{ type: 'engine.joined', at: fx.now(), engine: id, ...joined }])
    joinedAt = at!.offset
    driving = await host({
      behaviour: fenced(inference(id)),
      feeds: [
        { topic: 'learner', from: 'oldest' },
        { topic: 'assignments', from: 'latest' },
      ],
      perform,
      keyOf: inferenceKey,
      tickMs: 1000,
    })
    if (version === undefined) return
    await driving.live
    await journal.append([{ type: 'weights.applied', at: fx.now(), engine: id, version, digest: '' }])
  }

  /** All would wait for an engine that has not the newest weights. It takes them when it comes again. */
  async function leaveFor(reason: string): Promise<void> {
    const retryAfterMs = restAfter(failedUpdates - 1)
    await journal.append([{ type: 'engine.left', at: fx.now(), engine: id, reason, retryAfterMs }])
  }

  async function joinAgain({ reason, retryAfterMs = 0 }: EngineLeft, offset: number): Promise<void> {
    if (over.signal.aborted || offset < joinedAt) return
    const why = silence === undefined ? {} : { err: silence }
    log.warn({ engine: id, reason, retryAfterMs, ...why }, 'an engine rests; it joins again')
    await stop()
    await sleep(retryAfterMs, undefined, { signal: over.signal, ref: false }).catch(() => {})
    if (!over.signal.aborted) await join()
  }

  async function stop(how?: CloseOptions): Promise<boolean> {
    const driven = driving
    driving = undefined
    await driven?.close(how)
    return driven !== undefined
  }

  /** An embedding that is closed has no more use for it. */
  function failed(thrown: unknown): void {
    const error = asError(thrown)
    if (!(error instanceof TroupeError) || !['actor.closed', 'bus.closed'].includes(error.code)) onFailed(error)
  }

  const { next: begin } = await journal.offsets('runs', 0)
  /** Coming, going and coming again follow one another. */
  let before = join()
  await before
  const following = await journal.follow(
    {
      group: `engine-watch.${fx.unique()}`,
      feeds: [{ topic: 'runs', from: 'oldest' }],
      onAssigned: async () => begin,
      onError: onFailed,
    },
    async entries => {
      for (const { message, offset } of entries) {
        if (message.type !== 'engine.left' || message.engine !== id) continue
        // Not awaited: an actor is closed in it, which takes longer than a batch may.
        before = before.then(() => joinAgain(message, offset)).catch(failed)
      }
    },
  )

  async function end(how?: CloseOptions): Promise<boolean> {
    over.abort()
    await before
    const wasDriven = await stop(how)
    await following.close()
    return wasDriven
  }
  return {
    async close(how) {
      await end(how)
    },
    async leave(reason) {
      if (await end()) await journal.append([{ type: 'engine.left', at: fx.now(), engine: id, reason }])
    },
  }
}

/** One that is lost is its lifeline's to bring back. */
const mayTryAgain = (thrown: unknown): thrown is TroupeError =>
  thrown instanceof TroupeError && thrown.retriable && thrown.code !== 'engine.lost'
