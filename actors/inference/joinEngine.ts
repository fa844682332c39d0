/**
 * Joins an engine to a run: announces it to the scheduler, and starts the inference actor that drives it.
 *
 * in   an open engine of any kind        out  engine.joined, the facts of inference, engine.left
 * Invariant: engine.joined is in the log before the engine gets turns. `leave` ends the inference actor and its
 * requests, then writes engine.left; `close` does not write it. An engine joins again after a pause if the scheduler
 * removed it (it was silent, slow or behind with new weights, or turn after turn failed) or if loading new weights
 * failed. The caller owns the engine: this file neither watches nor closes it.
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
  /** Policy version that the engine has loaded already. Default: none until it has applied `weights.published`. */
  readonly version?: number
  /** True to keep the KV cache of older weights when new ones are loaded. Default: false. */
  readonly keepKv?: boolean
  /**
   * Time in ms, from the first attempt to fetch a file of weights over HTTP, within which further attempts may begin.
   * Default: one hour.
   */
  readonly fetchWeightsMs?: number
  /**
   * Directory of the run's files: base of the relative paths with which weights are published. Default: the working
   * directory. Not used for weights that are served over HTTP or published with an absolute path.
   */
  readonly runDirectory?: string
  /** True if the engine sleeps while the trainer works. Default: false. */
  readonly sleeps?: boolean
  /**
   * Receives the error when the engine cannot join again, or when the log cannot be followed. Default: the error is
   * logged.
   */
  readonly onFailed?: (error: Error) => void
}

export interface Joined {
  /** Stops driving the engine without writing engine.left; used when the whole run ends. */
  close(options?: CloseOptions): Promise<void>
  /** Stops driving the engine and writes engine.left, so that the scheduler gives its turns to other engines. */
  leave(reason: string): Promise<void>
}

/**
 * Number of failed weight updates in a row at which the inference actor fails. After each earlier failure the engine
 * leaves the run and joins again. An error that is not retriable, or the loss of the engine, fails the actor at once.
 */
const mostFailedUpdates = 10

/**
 * Joins the engine; resolves when its inference actor runs. A caller may join the engine again only after `leave` or
 * `close`.
 */
export async function joinEngine(
  { journal, fx, host, log }: Pick<Embedded, 'journal' | 'fx' | 'host' | 'log'>,
  engine: Engine,
  options: JoinOptions = {},
): Promise<Joined> {
  const { id, capabilities } = engine
  const {
    onFailed = (error: Error) =>
      log.error(
        { engine: id, err: error },
        'this engine will not join again: its join failed, or the log cannot be followed',
      ),
  } = options
  const port = inferencePort(engine, options.keepKv ?? false, fx, {
    root: options.runDirectory,
    ...(options.fetchWeightsMs === undefined ? {} : { fetchMs: options.fetchWeightsMs }),
  })
  /**
   * Policy version that the engine was opened with (`options.version`); undefined once a weight update has succeeded.
   */
  let version = options.version === undefined ? undefined : policyVersion(options.version)
  /** Error of the latest status request; undefined if that request succeeded. */
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
      // A failed status request must not end the actor and its running turns. If the engine stays silent, the scheduler
      // removes it.
      if (request.kind !== 'status') throw thrown
      if (silence === undefined) log.warn({ engine: id, err: thrown }, 'an engine did not answer the status request')
      silence = asError(thrown)
      return undefined
    }
  }

  let driving: Host | undefined
  /** Log offset of the latest engine.joined of this engine. */
  let joinedAt = -1
  const over = new AbortController()

  async function join(): Promise<void> {
    const { kind, model, kvTokens, blockTokens, maxSequences, contextTokens, prefixSharing, prioritySign } =
      capabilities
    const joined = { kind, model, kvTokens, blockTokens, maxSequences, contextTokens, prefixSharing, prioritySign }
    const [at] = await journal.append([{ type: 'engine.joined', at: fx.now(), engine: id, ...joined }])
    joinedAt = at!.offset
    driving = await host({
      behaviour: fenced(inference(id, options.sleeps)),
      feeds: [
        { topic: 'learner', from: 'oldest' },
        { topic: 'assignments', from: 'latest', key: id },
      ],
      perform,
      keyOf: inferenceKey,
      tickMs: 1000,
    })
    if (version === undefined) return
    await driving.live
    await journal.append([{ type: 'weights.applied', at: fx.now(), engine: id, version, digest: '' }])
  }

  /**
   * Writes engine.left because a weight update failed, so that turns that need these weights do not wait for this
   * engine. The engine loads the newest weights when it joins again.
   */
  async function leaveFor(reason: string): Promise<void> {
    const retryAfterMs = restAfter(failedUpdates - 1)
    await journal.append([{ type: 'engine.left', at: fx.now(), engine: id, reason, retryAfterMs }])
  }

  async function joinAgain({ reason, retryAfterMs = 0 }: EngineLeft, offset: number): Promise<void> {
    if (over.signal.aborted || offset < joinedAt) return
    const why = silence === undefined ? {} : { err: silence }
    log.warn({ engine: id, reason, retryAfterMs, ...why }, 'an engine left the run and joins again after a pause')
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

  /** Calls `onFailed` with the error, unless the error says that the embedding (`Embedded`) was closed meanwhile. */
  function failed(thrown: unknown): void {
    const error = asError(thrown)
    if (!(error instanceof TroupeError) || !['actor.closed', 'bus.closed'].includes(error.code)) onFailed(error)
  }

  const { next: begin } = await journal.offsets('runs', 0)
  /** Last element of a promise chain that runs joins and pauses one after the other. */
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
        // joinAgain is not awaited: closing an actor takes longer than handling a batch of records may take.
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

/**
 * True for a retriable error, after which the same engine may succeed later; false for any other error, and for the
 * loss of the engine, which its process actor then starts anew.
 */
const mayTryAgain = (thrown: unknown): thrown is TroupeError =>
  thrown instanceof TroupeError && thrown.retriable && thrown.code !== 'engine.lost'
