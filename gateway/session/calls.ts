/**
 * Carries out calls: places a request in its session, has an engine continue its tokens, and records call and answer.
 *
 * in   requests in canonical form
 * out  `call.started`, `call.finished`; the answer, and its text while it is sampled
 * Invariant: an answer is resolved once `call.finished` is durable. A retry of a request (the same digest, and the
 * client says that it is one) joins the running call, or gets the recorded answer. The same request without that mark,
 * or after a failed call, is a new call. A call whose answer was lost is generated again under its number and seed.
 */
import type { CallFinished, CallStarted } from '../../messages/facts'
import type { EngineId } from '../../messages/ids'
import { concatArrays } from '../../runtime/concatArrays'
import { afterOn, type Effects } from '../../runtime/effects'
import { asError } from '../../runtime/errors'
import { canonicalJson } from '../conversation/message'
import type { EnginePool, PoolRequest } from '../engines/enginePool'
import { contextExceeded, GatewayError, invalid, refusalOf } from '../gatewayError'
import { answeredFact, failedFact, startedFact } from './callFacts'
import type { AtPoint } from './callPoints'
import { type CallRequest, requestDigest } from './callRequest'
import { contextOf, placementOf, type RenderingOptions, rendered } from './placement'
import { recordMessages, type SessionState } from './session'
import type { Sessions } from './sessions'

export interface LiveCall {
  readonly session: SessionState
  readonly call: number
  readonly started: CallStarted
  /** Calls `onTokens` with all tokens so far, then with each further piece, until the returned function is called. */
  follow(onTokens: (tokens: Int32Array) => void): () => void
  /** Resolves when the answer is durable. @throws GatewayError if the call failed */
  readonly finished: Promise<CallFinished>
}

export interface CallsOptions extends RenderingOptions {
  readonly sessions: Sessions
  readonly pool: EnginePool
  readonly decode: (tokens: Int32Array) => Promise<string>
  readonly fx: Effects
  /** Time that one call may take, its wait for an engine included, ms. */
  readonly callTimeoutMs: number
  /** Present inside a run: the recipe decides the sampling of evaluations too. `turns`: bound on a rollout's calls. */
  readonly run?: { readonly turns: number }
  readonly atPoint?: AtPoint
}

export class Calls {
  private readonly live = new Map<string, LiveCall>()
  /** Latest placement of each session: the requests of a session are placed one after the other. */
  private readonly placing = new Map<string, Promise<unknown>>()
  /** Abort controllers of the running calls, by `SESSION#CALL`. */
  private readonly ending = new Map<string, AbortController>()
  private stopped: GatewayError | undefined

  constructor(private readonly options: CallsOptions) {}

  /** Starts, joins or repeats a call. @throws GatewayError if it cannot be placed */
  async ask(session: SessionState, request: CallRequest): Promise<LiveCall> {
    const before = this.placing.get(session.id)
    const mine = (before ?? Promise.resolve()).catch(() => {}).then(() => this.begin(session, request))
    this.placing.set(session.id, mine)
    try {
      return await mine
    } finally {
      if (this.placing.get(session.id) === mine) this.placing.delete(session.id)
    }
  }

  /** Number of calls without a durable answer yet: those that are being generated or wait for an engine. */
  get running(): number {
    return this.live.size
  }

  /** Aborts running calls. A call is recorded as failed, unless its engine has already answered. */
  async close(): Promise<void> {
    this.stopped = new GatewayError({ kind: 'unavailable', code: 'closing', message: 'the gateway is closing' })
    for (const one of this.ending.values()) one.abort(this.stopped)
    await Promise.allSettled([...this.live.values()].map(one => one.finished))
  }

  /** Ends the running calls of a session, whose agent is gone. */
  async end(session: SessionState): Promise<void> {
    const mine = [...this.live.values()].filter(one => one.session === session)
    const gone = new GatewayError({
      ...{ kind: 'conflict', code: 'session_ended' },
      message: `the agent of session ${session.id} has ended, so its running calls are ended`,
    })
    for (const { call } of mine) this.ending.get(`${session.id}#${call}`)?.abort(gone)
    await Promise.allSettled(mine.map(one => one.finished))
  }

  private async begin(session: SessionState, request: CallRequest): Promise<LiveCall> {
    const { sessions, renderer, fx, run } = this.options
    sessions.checkOpen(session)
    const tools = canonicalJson(request.tools)
    const placement = placementOf(session, request, tools)
    const digest = requestDigest(request, placement.digests)
    const known = request.isRetry ? session.byDigest.get(digest) : undefined
    if (known !== undefined) {
      const again = this.again(session, known)
      if (again !== undefined) return again
    }
    const { tree } = session.calls
    if (run !== undefined && tree.nodes.size >= run.turns) {
      session.exhausted = 'turns'
      throw invalid(`the rollout has had its ${run.turns} calls (limits.turns): it is over`, 'messages', 'turn_limit')
    }
    const placed = await rendered(this.options, session, request, placement)
    await this.options.atPoint?.('call.placed')
    const started = startedFact(session, request, placed, {
      at: fx.now(),
      digest,
      tools,
      sampling: this.samplingOf(session, request),
      maxTokens: this.maxTokensOf(session, placed.context.length, request.maxTokens),
      opensThinking: renderer.opensThinking && request.dialect !== 'completions',
    })
    recordMessages(started, placed.messages)
    return this.generate(session, started, placed.context)
  }

  /** Returns the running call, the recorded answer, or a new attempt of a lost one; undefined if the call failed. */
  private again(session: SessionState, call: number): LiveCall | undefined {
    const running = this.live.get(`${session.id}#${call}`)
    if (running !== undefined) return running
    const node = session.calls.tree.nodes.get(call)
    if (node === undefined || node.finished?.finish === 'failed') return undefined
    const { started, finished } = node
    if (finished !== null)
      return {
        session,
        call,
        started,
        follow(onTokens) {
          onTokens(finished.tokens)
          return () => {}
        },
        finished: Promise.resolve(finished),
      }
    const context = contextOf(session, started)
    return this.generate(session, { ...started, at: this.options.fx.now(), attempt: started.attempt + 1 }, context)
  }

  private samplingOf({ request }: SessionState, { asked }: CallRequest): CallStarted['sampling'] {
    if (request.purpose !== 'eval' || this.options.run !== undefined) return request.sampling
    const { temperature, top_p: topP } = asked
    // top_p 0 leaves only the likeliest token, which engines sample with temperature 0.
    if (topP === 0) return { ...request.sampling, temperature: 0 }
    return {
      ...request.sampling,
      ...(typeof temperature === 'number' ? { temperature } : {}),
      ...(typeof topP === 'number' ? { topP } : {}),
    }
  }

  private maxTokensOf(session: SessionState, context: number, asked: number | undefined): number {
    const { limits } = session.request
    const longest = Math.min(limits.contextTokens, this.options.pool.contextTokens)
    if (context >= longest) {
      session.exhausted = 'tokens'
      throw contextExceeded(context, longest)
    }
    return Math.max(1, Math.min(longest - context, limits.responseTokens, asked ?? Number.POSITIVE_INFINITY))
  }

  private generate(session: SessionState, started: CallStarted, context: Int32Array): LiveCall {
    const { sessions } = this.options
    const key = `${session.id}#${started.call}`
    const tokens: Int32Array[] = []
    const followers = new Set<(tokens: Int32Array) => void>()
    const onTokens = (more: Int32Array) => {
      tokens.push(more)
      for (const follower of followers) follower(more)
    }
    // The request is placed before its record is durable, so that the next request of the session finds it.
    sessions.apply(started)
    const recorded = sessions.write([started])
    recorded.catch(() => {})
    const finished = this.run(session, started, context, onTokens, recorded).finally(() => this.live.delete(key))
    finished.catch(() => {})
    const live: LiveCall = {
      session,
      call: started.call,
      started,
      finished,
      follow(follower) {
        if (tokens.length > 0) follower(concatArrays(Int32Array, tokens))
        followers.add(follower)
        return () => followers.delete(follower)
      },
    }
    this.live.set(key, live)
    return live
  }

  private async run(
    session: SessionState,
    started: CallStarted,
    context: Int32Array,
    onTokens: (tokens: Int32Array) => void,
    recorded: Promise<void>,
  ): Promise<CallFinished> {
    const { sessions, pool, decode, fx, callTimeoutMs, atPoint } = this.options
    const { trajectory, call, attempt, sampling, seed, maxTokens } = started
    const key = `${trajectory}#${call}`
    const aborter = new AbortController()
    const { signal } = aborter
    this.ending.set(key, aborter)
    const cancel = afterOn(fx, callTimeoutMs, () => aborter.abort(timedOut(callTimeoutMs)))
    if (this.stopped !== undefined) aborter.abort(this.stopped)
    let isStreamed = false
    try {
      const preferred = started.parent === null ? undefined : engineOf(session, started.parent)
      const requestId = `${trajectory}#c${call}#${attempt}`
      const ask: PoolRequest = {
        requestId,
        trajectory,
        turn: call,
        context,
        maxTokens,
        sampling,
        seed,
        priority: session.request.order,
        keep: true,
      }
      // The engine does not wait for call.started: if that record is lost, a retry has the same number and seed.
      const generating = pool.generate(
        ask,
        preferred,
        more => {
          onTokens(more)
          if (!isStreamed) void atPoint?.('tokens.streamed')?.catch(() => {})
          isStreamed = true
        },
        signal,
      )
      generating.catch(() => {})
      await recorded.catch(thrown => {
        aborter.abort(refusalOf(thrown))
        throw thrown
      })
      await atPoint?.('call.started')
      const g = await generating
      if (!isStreamed) onTokens(g.tokens)
      await atPoint?.('engine.answered')
      const { tokens, logprobs } = g
      if (tokens.length !== logprobs.length) {
        const message = `engine ${g.engine} sampled ${tokens.length} tokens and gave ${logprobs.length} logprobs: the call cannot be trained on`
        throw new GatewayError({ kind: 'internal', code: 'logprobs_mismatch', message })
      }
      const fact = answeredFact(started, g, g.isJoined ? await decode(tokens) : g.text, fx.now())
      await sessions.write([fact])
      await atPoint?.('call.finished')
      return fact
    } catch (thrown) {
      const refusal = refusalOf(signal.aborted ? signal.reason : thrown)
      if (refusal.code === 'context_length_exceeded') session.exhausted = 'tokens'
      // If the log cannot be written, this fact is missing too: the call counts as lost, and a retry repeats it.
      if (refusal.code === 'log_failed') throw refusal
      await sessions.write([failedFact(started, asError(refusal).message, fx.now())])
      throw refusal
    } finally {
      cancel()
      this.ending.delete(key)
    }
  }
}

const timedOut = (ms: number) =>
  new GatewayError({ kind: 'unavailable', code: 'timeout', message: `the call was not answered within ${ms} ms` })

const engineOf = (session: SessionState, call: number): EngineId | undefined =>
  session.calls.tree.nodes.get(call)?.finished?.engine
