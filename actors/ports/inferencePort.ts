/**
 * The engine's side of inference: one assignment, one answer.
 *
 * in   requests of the inference behaviour        out  turn.completed | turn.interrupted, weights.applied, engine.status
 * Invariant: whatever the engine does, a generation ends in a fact that echoes its attempt; a newer attempt of a
 * trajectory ends an older one, whose tokens so far are in its fact.
 */
import type { GenerateTurn } from '../../messages/commands'
import type { TurnInterrupted } from '../../messages/facts'
import type { TrajectoryId } from '../../messages/ids'
import type { Decision } from '../../runtime/behaviour'
import type { Effects } from '../../runtime/effects'
import { type Engine, type GenerateRequest, GenerationLost } from '../../runtime/engine'
import { asError, TroupeError } from '../../runtime/errors'
import type { Port } from '../../runtime/host'
import { weightsHere } from '../../runtime/weights/fetchWeights'
import type { InferenceRequest } from '../inference'

export const inferenceKey = (request: InferenceRequest): string => {
  switch (request.kind) {
    case 'generate':
      return requestId(request.ask)
    case 'evict':
      return `evict ${request.trajectory}`
    case 'update':
      return `update ${request.weights.version}`
    case 'status':
      return 'status'
  }
}

const requestId = (ask: GenerateTurn) => `${ask.trajectory}#${ask.turn}#${ask.attempt}`

/** Answers the behaviour's requests with a real engine. */
export function inferencePort(engine: Engine, keepKv: boolean, fx: Effects): Port<InferenceRequest> {
  /** The request that runs for a trajectory: a newer attempt ends an older one. */
  const current = new Map<TrajectoryId, string>()
  /** New weights that were asked for, and the loading of the last: one after the other. */
  let updates = 0
  let updating: Promise<unknown> = Promise.resolve()

  async function generate(ask: GenerateTurn, signal: AbortSignal): Promise<Decision> {
    const id = requestId(ask)
    const older = current.get(ask.trajectory)
    if (older !== undefined && older !== id) await engine.abort(older)
    current.set(ask.trajectory, id)
    const place = { trajectory: ask.trajectory, turn: ask.turn, attempt: ask.attempt, engine: engine.id }
    try {
      const g = await engine.generate(toRequest(id, ask), signal)
      const { tokens, logprobs, segments } = g
      const asked = g.entropies === undefined ? {} : { entropies: g.entropies }
      if (g.finish === 'aborted') {
        return interrupted({
          ...place,
          tokens,
          logprobs,
          ...asked,
          segments,
          reason: 'aborted',
          error: '',
          at: fx.now(),
        })
      }
      const { text, finish, cachedTokens, preemptions, timing } = g
      const answer = { tokens, logprobs, ...asked, text, finish, segments, cachedTokens, preemptions, timing }
      return { facts: [{ type: 'turn.completed', at: fx.now(), ...place, ...answer }], commands: [] }
    } catch (thrown) {
      const error = asError(thrown)
      const code = error instanceof TroupeError ? error.code : ''
      const reason =
        code === 'engine.context_exceeded' ? 'too-long' : code === 'engine.lost' ? 'engine-lost' : 'engine-error'
      const nothing = { tokens: new Int32Array(), logprobs: new Float32Array(), segments: [] }
      const partial = error instanceof GenerationLost ? error.partial : nothing
      return interrupted({ ...place, ...partial, reason, error: error.message, at: fx.now() })
    } finally {
      if (current.get(ask.trajectory) === id) current.delete(ask.trajectory)
    }
  }

  return async (request, signal) => {
    switch (request.kind) {
      case 'generate':
        return generate(request.ask, signal)
      case 'evict': {
        const running = current.get(request.trajectory)
        if (running !== undefined) await engine.abort(running)
        await engine.release(request.trajectory)
        return undefined
      }
      case 'update': {
        const { version, digest } = request.weights
        const turn = ++updates
        const directory = await weightsHere(request.weights, { signal })
        const updated = updating.then(async () => {
          // One that took longer to come than a later one is not loaded over it.
          if (turn < updates) return false
          await engine.updateWeights({ version, digest, directory, keepKv })
          return true
        })
        updating = updated.catch(() => undefined)
        if (!(await updated)) return undefined
        return {
          facts: [{ type: 'weights.applied', at: fx.now(), engine: engine.id, version, digest }],
          commands: [],
        }
      }
      case 'status':
        return { facts: [], commands: [await engine.status()] }
    }
  }
}

const interrupted = (fact: Omit<TurnInterrupted, 'type'>): Decision => ({
  facts: [{ type: 'turn.interrupted', ...fact }],
  commands: [],
})

function toRequest(id: string, ask: GenerateTurn): GenerateRequest {
  return {
    requestId: id,
    trajectory: ask.trajectory,
    context: ask.context,
    resumedTokens: ask.resumedTokens,
    maxTokens: ask.maxTokens,
    sampling: ask.sampling,
    seed: ask.seed,
    priority: ask.order,
    keep: true,
  }
}
