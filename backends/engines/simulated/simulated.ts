/**
 * The simulated engine: runs an engine model in real time, to rehearse actors and the scheduler without a model or GPU.
 *
 * in   an engine model, requests
 * out  meaningless tokens, at the times at which such an engine would sample them
 * Batches, KV blocks, preemptions and the length of steps come from the simulator (kernels/simulator), driven by the
 * clock of `fx`; tokens come from turnDrawer, or from the options' `draw`. Simulated time never runs ahead of the
 * clock; a timer that fires late does not shift the simulated times of steps.
 * Invariant: a turn's tokens follow only from its request, whatever other requests run; every `generate` settles.
 */
import {
  type DrawnTurn,
  type EndedTurn,
  type EngineModel,
  type History,
  SimulatedEngine as Simulation,
  type TurnRequest,
} from '../../../kernels'
import { type EngineId, type GroupId, groupOf, policyVersion, type TrajectoryId } from '../../../messages/ids'
import { concatArrays } from '../../../runtime/concatArrays'
import { afterOn, type Effects, systemEffects } from '../../../runtime/effects'
import { asError } from '../../../runtime/errors'
import type { Engine, EngineCapabilities, GenerateRequest, Generation, WeightsUpdate } from '../engine'
import { checkRequest, closedEngine } from '../server/request'
import { checkRoom } from './room'
import { type DrawTurn, meaninglessTurns } from './turns'

export interface SimulatedEngineOptions {
  readonly id: EngineId
  readonly model: EngineModel
  readonly vocabulary: number
  readonly contextTokens: number
  readonly decode: (tokens: Int32Array) => Promise<string>
  /** Median number of tokens of a turn that may end by a stop token. Default: 256. */
  readonly medianTokens?: number
  /** Simulated milliseconds for which loading new weights stops the engine. Default: 1000. */
  readonly updateMs?: number
  /** True to obey the requests' priority if engines of the model's family do. Default: true. */
  readonly priority?: boolean
  /** Factor by which simulated time is faster than the clock. Default: 1. */
  readonly speed?: number
  /**
   * Draws a turn of at most `maxTokens` tokens, to follow the `resumedTokens` that earlier attempts sampled. Default:
   * meaningless tokens (turnDrawer).
   */
  readonly draw?: DrawTurn
  readonly fx?: Effects
}

export interface SimulatedEngine extends Engine {
  stream(request: GenerateRequest, onTokens: (tokens: Int32Array) => void, signal?: AbortSignal): Promise<Generation>
}

interface Running {
  readonly request: GenerateRequest
  readonly turn: TurnRequest
  readonly drawn: DrawnTurn
  readonly queuedMs: number
  readonly onTokens: ((tokens: Int32Array) => void) | undefined
  readonly segments: { policyVersion: Generation['segments'][number]['policyVersion']; start: number; end: number }[]
  given: number
  isAborted: boolean
  readonly resolve: (generation: Generation) => void
  readonly reject: (error: Error) => void
}

interface Update {
  readonly update: WeightsUpdate
  readonly resolve: () => void
}

/** Makes the engine. @throws TroupeError engine.unfit if a context of the run does not fit the model's KV cache */
export function simulatedEngine(options: SimulatedEngineOptions): SimulatedEngine {
  const { id, model, vocabulary, contextTokens, decode, fx = systemEffects } = options
  const { medianTokens = 256, updateMs = 1000, priority = true, speed = 1 } = options
  checkRoom(model, contextTokens)
  const isOrdered = priority && model.family === 'vllm'
  const { kvTokens, blockTokens, maxSequences, prefixSharing } = model
  const capabilities: EngineCapabilities = {
    ...{ kind: 'simulated', model: model.name, kvTokens, blockTokens, maxSequences, contextTokens, vocabulary },
    ...{ prefixSharing, prioritySign: isOrdered ? -1 : 0, trainable: true, deterministic: true },
  }
  const engine = new Simulation(model, isOrdered)
  const { draw = meaninglessTurns(vocabulary, medianTokens) } = options
  const running = new Map<string, Running>()
  const byTurn = new Map<TurnRequest, Running>()
  const histories = new Map<TrajectoryId, History>()
  const prompts = new Map<GroupId, number>()
  const updates: Update[] = []
  const began = { at: fx.now(), elapsed: fx.elapsed() }
  let version = policyVersion(-1)
  let pausedUntilMs = 0
  let streams = 0
  let cancelTimer: () => void = () => {}
  let isClosed = false
  /** True if an abort or an update waits for the end of the current step. */
  let isCalled = false
  let isLiving = false

  const nowMs = () => (fx.elapsed() - began.elapsed) * speed
  const clockOf = (ms: number) => began.at + ms / speed

  /** Processes all batches that have ended by now, and schedules the end of the next one. */
  function live(): void {
    if (isLiving) {
      // The call comes from a caller that receives tokens from this loop, so the loop runs again afterwards.
      setImmediate(live)
      return
    }
    isLiving = true
    try {
      const now = nowMs()
      while (engine.endMs <= now) {
        const atMs = engine.endMs
        for (const ended of engine.finish(atMs)) end(ended, atMs)
        between(atMs)
      }
      if (!engine.isBusy) between(now)
      else if (isCalled) engine.schedule(now)
      book()
    } catch (thrown) {
      for (const one of [...running.values()]) settle(one, () => one.reject(asError(thrown)))
    } finally {
      isLiving = false
    }
  }

  /** Works between two batches: streams new tokens, removes aborted requests, changes weights, begins a batch. */
  function between(atMs: number): void {
    isCalled = false
    for (const one of running.values()) {
      if (one.onTokens === undefined && !one.isAborted) continue
      const progress = engine.progressOf(one.turn)
      if (progress === undefined) continue
      give(one, progress.generated)
      if (!one.isAborted) continue
      engine.withdraw(one.turn)
      finished(one, progress.generated, 'aborted', progress, atMs)
    }
    for (const { update, resolve } of updates.splice(0)) {
      for (const one of running.values()) mark(one, engine.progressOf(one.turn)?.generated ?? 0)
      if (!update.keepKv) engine.clearCache()
      version = update.version
      pausedUntilMs = Math.max(pausedUntilMs, atMs) + updateMs
      afterOn(fx, Math.max(0, pausedUntilMs - nowMs()) / speed, resolve)
    }
    if (atMs < pausedUntilMs) return
    engine.schedule(atMs)
    // While a caller streams, batches are cut into single steps, so that its tokens come one by one.
    if (streams > 0 && engine.isBusy) engine.schedule(atMs)
  }

  function book(): void {
    cancelTimer()
    // If no batch runs although requests wait, the engine is paused, so the next check is due at the end of the pause.
    const dueMs = engine.isBusy ? engine.endMs : running.size > 0 ? pausedUntilMs : undefined
    if (dueMs === undefined) return
    cancelTimer = afterOn(fx, Math.max(0, Math.ceil((dueMs - nowMs()) / speed)), live)
  }

  function end({ request, ...progress }: EndedTurn, atMs: number): void {
    const one = byTurn.get(request)!
    finished(one, request.newTokens, one.drawn.finish, progress, atMs)
  }

  function give(one: Running, generated: number): void {
    if (generated <= one.given) return
    const tokens = one.drawn.tokens.slice(one.given, generated)
    one.given = generated
    one.onTokens?.(tokens)
  }

  /** Counts the tokens after the last segment, up to token number `generated`, as sampled by the current version. */
  function mark({ segments }: Running, generated: number): void {
    const start = segments.at(-1)?.end ?? 0
    if (generated === start) return
    const last = segments.at(-1)
    if (last?.policyVersion === version) last.end = generated
    else segments.push({ policyVersion: version, start, end: generated })
  }

  function finished(
    one: Running,
    generated: number,
    finish: Generation['finish'],
    { startedMs, cachedTokens, firstTokenMs, preemptions }: Omit<EndedTurn, 'request'>,
    atMs: number,
  ): void {
    const { request, drawn, segments, queuedMs } = one
    give(one, generated)
    mark(one, generated)
    const tokens = drawn.tokens.slice(0, generated)
    const { context, resumedTokens } = request
    const whole = concatArrays(Int32Array, [context.subarray(context.length - resumedTokens), tokens])
    const answer = {
      ...{ tokens, logprobs: drawn.logprobs.slice(0, generated), finish, segments },
      ...{ cachedTokens, preemptions },
      timing: {
        queuedAt: clockOf(queuedMs),
        startedAt: clockOf(startedMs < 0 ? atMs : startedMs),
        firstTokenAt: clockOf(firstTokenMs < 0 ? atMs : firstTokenMs),
        endedAt: clockOf(atMs),
      },
    }
    settle(one, () => {
      const text = whole.length === 0 ? Promise.resolve('') : decode(whole)
      text.then(said => one.resolve({ ...answer, text: said }), one.reject)
    })
  }

  function settle(one: Running, how: () => void): void {
    running.delete(one.request.requestId)
    byTurn.delete(one.turn)
    if (one.onTokens !== undefined) streams--
    how()
  }

  async function generate(
    request: GenerateRequest,
    onTokens: Running['onTokens'],
    signal?: AbortSignal,
  ): Promise<Generation> {
    if (isClosed) throw closedEngine(id)
    if (signal?.aborted) throw asError(signal.reason)
    const { requestId, context, trajectory, turn = 0 } = request
    checkRequest(id, capabilities, request, running)
    const maxTokens = Math.min(request.maxTokens, contextTokens - context.length)
    const drawn = draw(request, maxTokens)
    const group = groupOf(trajectory)
    const asked: TurnRequest = {
      ...{ trajectory, group, turn, promptTokens: promptOf(request, group), contextTokens: context.length },
      ...{
        newTokens: drawn.tokens.length,
        maxNewTokens: maxTokens,
        order: request.priority,
        history: historyOf(trajectory),
      },
    }
    const abort = () => void endEarly(requestId)
    try {
      return await new Promise<Generation>((resolve, reject) => {
        const common = { queuedMs: nowMs(), segments: [], given: 0, isAborted: false }
        const one: Running = { ...common, request, turn: asked, drawn, onTokens, resolve, reject }
        signal?.addEventListener('abort', abort, { once: true })
        // Processes the batches that ended before this call, so that the new request does not join them.
        live()
        running.set(requestId, one)
        byTurn.set(asked, one)
        if (onTokens !== undefined) streams++
        engine.submit(asked)
        if (engine.isBusy) engine.schedule(nowMs())
        live()
      })
    } finally {
      signal?.removeEventListener('abort', abort)
    }
  }

  function endEarly(requestId: string): void {
    const one = running.get(requestId)
    if (one === undefined) return
    one.isAborted = true
    isCalled = true
    // Runs later, because the caller may be inside a callback of the batch that is being processed.
    setImmediate(live)
  }

  function promptOf({ promptTokens, context, resumedTokens }: GenerateRequest, group: GroupId): number {
    const tokens = promptTokens ?? prompts.get(group) ?? context.length - resumedTokens
    if (promptTokens === undefined) prompts.set(group, tokens)
    return Math.min(tokens, context.length)
  }

  function historyOf(trajectory: TrajectoryId): History {
    const history = histories.get(trajectory) ?? { computedTokens: 0 }
    histories.set(trajectory, history)
    return history
  }

  return {
    id,
    capabilities,
    lost: new Promise(() => {}),
    generate: (request, signal) => generate(request, undefined, signal),
    stream: (request, onTokens, signal) => generate(request, onTokens, signal),
    abort: async requestId => endEarly(requestId),
    async release(trajectory) {
      histories.delete(trajectory)
      prompts.delete(groupOf(trajectory))
    },
    updateWeights: update =>
      new Promise(resolve => {
        updates.push({ update, resolve })
        isCalled = true
        setImmediate(live)
      }),
    async status() {
      live()
      // Updates the tally, so that the work of a running batch up to its current step is counted.
      if (engine.isBusy) engine.schedule(nowMs())
      book()
      const { busyMs, generatedTokens, prefilledTokens } = engine.tally
      return {
        ...{ type: 'engine.status', at: fx.now(), engine: id, version, kvTokens, generatedTokens, prefilledTokens },
        referencedTokens: engine.referencedTokens(nowMs()),
        cachedTokens: engine.cache.keptBlocks * blockTokens,
        ...{ running: engine.running, waiting: engine.waiting, preemptions: engine.preemptions },
        ...{ busyMs: busyMs / speed, cpuMs: 0, maxRssBytes: 0 },
      }
    },
    async close() {
      isClosed = true
      for (const one of running.values()) one.isAborted = true
      isCalled = true
      live()
    },
  }
}
