/**
 * Lets the gateway inside a run use the run's engines: each call becomes a turn for the scheduler, like any other turn.
 *
 * in   contexts to continue; turn.completed | interrupted, scheduler.claimed from the log
 * out  turn.asked + turn.generate; generations
 * Invariant: a rollout has one turn at a time, so parallel calls in one session are generated one after the other.
 * Turns are numbered in the order of generation, apart from the calls. An answer counts only for the attempt asked
 * last. An interrupted turn continues after the tokens that it had, unless its context is too long, the recording that
 * serves as engine lacks it, or `mostFaults` attempts gave no token: then its call fails. Tokens are not streamed: they
 * come with the answer.
 */
import type { GenerateTurn } from '../../messages/commands'
import type { Fact, RolloutRequested, TurnCompleted, TurnInterrupted } from '../../messages/facts'
import type { EngineId, Epoch, TrajectoryId } from '../../messages/ids'
import { concatArrays } from '../../runtime/concatArrays'
import { afterOn, type Effects } from '../../runtime/effects'
import { asError } from '../../runtime/errors'
import { contextDigest } from '../../runtime/journal/contextDigest'
import type { Journal } from '../../runtime/journal/journal'
import { contextExceeded, GatewayError } from '../gatewayError'
import type { EnginePool, PoolGeneration, PoolRequest } from './enginePool'
import { joined, wholeOf } from './joined'

export interface RunEnginesOptions {
  readonly journal: Journal
  readonly fx: Effects
  readonly contextTokens: number
  readonly model: string
  /** Time after which an unanswered turn is asked again, ms. */
  readonly turnTimeoutMs: number
  /** Called when the log cannot be read any further, so that no answers arrive. */
  readonly onFailed: (error: Error) => void
}

export interface RunEngines extends EnginePool {
  /** Accepts calls of a rollout from now on. `turn`: number of its next turn. */
  enter(request: RolloutRequested, epoch: Epoch, turn: number): void
  leave(trajectory: TrajectoryId): void
}

/** A rollout's calls, which are generated one after the other. */
interface Lane {
  readonly request: RolloutRequested
  readonly epoch: Epoch
  nextTurn: number
  latest: Promise<unknown>
}

type Answer = TurnCompleted | TurnInterrupted
type Asked = Pick<GenerateTurn, 'turn' | 'attempt' | 'context' | 'maxTokens' | 'resumedTokens' | 'engine'>

/**
 * Number of attempts without a token after which a call fails. An attempt with tokens, or an aborted one, sets the
 * count to 0; an unanswered one does not change it.
 */
const mostFaults = 5

export async function runEngines(options: RunEnginesOptions): Promise<RunEngines> {
  const { journal, fx, turnTimeoutMs } = options
  const lanes = new Map<TrajectoryId, Lane>()
  const waiting = new Map<string, (answer: Answer | undefined) => void>()
  let running = 0

  function take(fact: Fact): void {
    if (fact.type === 'turn.completed' || fact.type === 'turn.interrupted')
      waiting.get(keyOf(fact.trajectory, fact.turn, fact.attempt))?.(fact)
    // A new scheduler has not got the requests that were made before its claim, so they are made again.
    else if (fact.type === 'scheduler.claimed') for (const again of [...waiting.values()]) again(undefined)
  }
  const following = await journal.follow(
    {
      group: `agents.${fx.unique()}`,
      feeds: [{ topic: 'trajectories', from: 'latest' }],
      onError: options.onFailed,
    },
    async entries => {
      for (const { message } of entries) take(message as Fact)
    },
  )

  /** Requests one attempt. Returns undefined if no answer came in `turnTimeoutMs`, or a new scheduler took over. */
  async function attempt(
    lane: Lane,
    request: PoolRequest,
    asked: Asked,
    signal: AbortSignal,
  ): Promise<Answer | undefined> {
    const { trajectory, sampling, seed } = request
    const { order, minVersion } = lane.request
    const key = keyOf(trajectory, asked.turn, asked.attempt)
    const { context, resumedTokens, ...place } = asked
    const common = { ...place, trajectory, epoch: lane.epoch, seed, sampling }
    let cancel = () => {}
    const answer = new Promise<Answer | undefined>((resolve, reject) => {
      waiting.set(key, resolve)
      const onAbort = () => reject(asError(signal.reason))
      const stopWaiting = afterOn(fx, turnTimeoutMs, () => resolve(undefined))
      signal.addEventListener('abort', onAbort)
      if (signal.aborted) onAbort()
      cancel = () => {
        stopWaiting()
        signal.removeEventListener('abort', onAbort)
        waiting.delete(key)
      }
    })
    answer.catch(() => {})
    try {
      const at = fx.now()
      await journal.append([
        { type: 'turn.asked', at, ...common, contextTokens: context.length, contextDigest: contextDigest(context) },
        {
          ...{ type: 'turn.generate', ...common, context, resumedTokens, order, minVersion },
          // Each agent makes its own prompt, so no prompt is known to be shared by the group.
          ...{ promptTokens: 0, boundTokens: context.length + asked.maxTokens },
        },
      ])
      return await answer
    } finally {
      cancel()
    }
  }

  async function turn(
    lane: Lane,
    request: PoolRequest,
    preferred: EngineId | undefined,
    signal: AbortSignal,
  ): Promise<PoolGeneration> {
    const number = lane.nextTurn++
    const parts: Pick<TurnInterrupted, 'tokens' | 'logprobs' | 'segments'>[] = []
    let engine = preferred ?? null
    let faults = 0
    for (let tries = 0; ; tries++) {
      const had = parts.reduce((sum, part) => sum + part.tokens.length, 0)
      const context = concatArrays(Int32Array, [request.context, ...parts.map(part => part.tokens)])
      const asked = {
        turn: number,
        attempt: tries,
        context,
        maxTokens: request.maxTokens - had,
        resumedTokens: had,
        engine,
      }
      const answer = await attempt(lane, request, asked, signal)
      if (answer === undefined) continue
      if (answer.type === 'turn.completed') {
        const { text, finish, cachedTokens, preemptions, timing } = answer
        const last = { ...answer, text, finish, cachedTokens, preemptions, timing }
        return { ...joined([...parts, answer], last), finish, engine: answer.engine, isJoined: parts.length > 0 }
      }
      const { tokens, reason, error } = answer
      if (reason === 'too-long') throw contextExceeded(request.context.length, options.contextTokens)
      if (tokens.length > 0) parts.push(answer)
      const whole = wholeOf(parts, request)
      if (whole !== undefined) return { ...whole, engine: answer.engine, isJoined: true }
      faults = reason === 'aborted' || tokens.length > 0 ? 0 : faults + 1
      engine = reason === 'aborted' ? answer.engine : null
      if (faults >= mostFaults || reason === 'not-recorded')
        throw new GatewayError({
          ...{ kind: 'unavailable', code: 'engine_failed' },
          message: `no engine answered turn ${number} of ${request.trajectory}: ${error}`,
        })
    }
  }

  return {
    contextTokens: options.contextTokens,
    model: options.model,
    load: () => ({ running, waiting: 0 }),
    close: () => following.close(),
    enter(request, epoch, next) {
      lanes.set(request.trajectory, { request, epoch, nextTurn: next, latest: Promise.resolve() })
    },
    leave: trajectory => void lanes.delete(trajectory),
    async generate(request, preferred, _onTokens, signal) {
      const lane = lanes.get(request.trajectory)
      if (lane === undefined)
        throw new GatewayError({
          ...{ kind: 'conflict', code: 'session_ended' },
          message: `the rollout ${request.trajectory} is over, so its agent's calls are refused`,
        })
      running++
      const mine = lane.latest.catch(() => {}).then(() => turn(lane, request, preferred, signal))
      lane.latest = mine
      try {
        return await mine
      } finally {
        running--
      }
    },
  }
}

const keyOf = (trajectory: TrajectoryId, turn: number, attempt: number) => `${trajectory}#${turn}#${attempt}`
