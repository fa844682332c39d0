/**
 * Port of the inference behaviour to its engine: carries out its requests, and answers each generation with one fact.
 *
 * in   requests of the inference behaviour
 * out  turn.completed | turn.interrupted, weights.applied, engine.slept | woke, engine.status
 * Invariant: a generation ends in one fact, which carries the latest attempt that asked for it. The exception is a
 * generation without tokens whose engine is lost: it has no fact, since the scheduler interrupts its turn when the
 * engine leaves. If this port reported the loss earlier, the turn could be assigned to the lost engine again and again,
 * until its rollout fails. A newer attempt of a trajectory aborts the older attempt's generation, whose fact has the
 * tokens sampled so far. But a newer attempt that asks for the same turn from the same context takes over the running
 * generation, and only the newer attempt's fact is written; otherwise a slow turn that is asked again would never end.
 */
import { type Engine, type GenerateRequest, type Generation, GenerationLost } from '../../backends/engines/engine'
import { adapterOf, type FetchOptions, type PublishedWeights, weightsHere } from '../../backends/weights/fetchWeights'
import type { GenerateTurn } from '../../messages/commands'
import type { TurnInterrupted } from '../../messages/facts'
import type { TrajectoryId } from '../../messages/ids'
import type { Effects } from '../../runtime/effects'
import { asError, TroupeError } from '../../runtime/errors'
import type { Decision } from '../../runtime/host/behaviour'
import type { Port } from '../../runtime/host/host'
import { within } from '../../runtime/within'
import type { InferenceRequest } from './inference'

export const inferenceKey = (request: InferenceRequest): string => {
  switch (request.kind) {
    case 'generate':
      return requestId(request.ask)
    case 'evict':
      return `evict ${request.trajectory}`
    case 'update':
      return `update ${request.weights.version}`
    case 'status':
    case 'sleep':
    case 'wake':
      return request.kind
  }
}

interface Running {
  /** Id of the generation's request at the engine. */
  readonly id: string
  readonly ask: GenerateTurn
  readonly generation: Promise<Generation>
  /** Number of earlier attempts of the turn that asked for this generation: 0 for the attempt that began it. */
  readonly before: number
  /** True once a newer attempt has taken over this generation: then only the newer attempt writes a fact. */
  isTakenOver: boolean
}

/**
 * Reasons for `turn.interrupted`, by the code of the engine's error; the reason for any other error is `engine-error`.
 */
const reasons: Readonly<Record<string, TurnInterrupted['reason']>> = {
  'engine.context_exceeded': 'too-long',
  'engine.not_recorded': 'not-recorded',
  'engine.lost': 'engine-lost',
  'codec.timeout': 'not-decoded',
  'codec.lost': 'not-decoded',
}

/**
 * Longest time in ms to wait, after a generation failed because its engine was lost, for the report of that loss
 * (`Engine.lost`).
 */
const lostMs = 2000

/**
 * Upper bound on the attempts that take over one generation. The next attempt after them aborts the generation, which
 * counts as hanging, and begins a new one.
 */
const mostBefore = 10

const requestId = (ask: GenerateTurn) => `${ask.trajectory}#${ask.turn}#${ask.attempt}`

/**
 * Makes the port that carries out the inference behaviour's requests on one engine. `keepKv`: true to keep the KV cache
 * of older weights when new ones are loaded. `fetching`: where published weights lie, and how long to try to fetch
 * them.
 */
export function inferencePort(
  engine: Engine,
  keepKv: boolean,
  fx: Effects,
  fetching: Pick<FetchOptions, 'root' | 'fetchMs'> = {},
): Port<InferenceRequest> {
  /** Running generation of each trajectory, under its latest attempt. */
  const current = new Map<TrajectoryId, Running>()
  /** Number of weight updates requested so far. */
  let updates = 0
  /** End of the latest requested change of the engine (weight update, sleep or wake); changes run one after another. */
  let updating: Promise<unknown> = Promise.resolve()
  /** True from the end of a sleep to the end of the next update or wake; always false if the engine cannot sleep. */
  let isAsleep = false

  /** Runs `change` once the updates, sleeps and wakes that were requested earlier have succeeded or failed. */
  function inTurn<T>(change: () => Promise<T>): Promise<T> {
    const changed = updating.then(change)
    updating = changed.catch(() => undefined)
    return changed
  }
  const said = (type: 'engine.slept' | 'engine.woke'): Decision => ({
    facts: [{ type, at: fx.now(), engine: engine.id }],
    commands: [],
  })

  function begin(ask: GenerateTurn, older: Running | undefined, signal: AbortSignal): Running {
    const id = requestId(ask)
    if (older === undefined || !isShared(older, ask)) {
      const generation = (async () => engine.generate(toRequest(id, ask), signal))()
      return { id, ask, generation, before: 0, isTakenOver: false }
    }
    older.isTakenOver = true
    return { ...older, ask, before: older.before + 1, isTakenOver: false }
  }

  async function generate(ask: GenerateTurn, signal: AbortSignal): Promise<Decision | undefined> {
    const older = current.get(ask.trajectory)
    if (older !== undefined && !isShared(older, ask)) await engine.abort(older.id)
    const running = begin(ask, current.get(ask.trajectory), signal)
    current.set(ask.trajectory, running)
    const place = { trajectory: ask.trajectory, turn: ask.turn, attempt: ask.attempt, engine: engine.id }
    try {
      const g = await running.generation
      if (running.isTakenOver) return undefined
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
      if (running.isTakenOver) return undefined
      const error = asError(thrown)
      const code = error instanceof TroupeError ? error.code : ''
      const reason = reasons[code] ?? 'engine-error'
      const nothing = { tokens: new Int32Array(), logprobs: new Float32Array(), segments: [] }
      const partial = error instanceof GenerationLost ? error.partial : nothing
      if (reason === 'engine-lost' && partial.tokens.length === 0 && (await isLost(engine))) return undefined
      return interrupted({ ...place, ...partial, reason, error: error.message, at: fx.now() })
    } finally {
      if (current.get(ask.trajectory) === running) current.delete(ask.trajectory)
    }
  }

  return async (request, signal) => {
    switch (request.kind) {
      case 'generate':
        return generate(request.ask, signal)
      case 'evict': {
        const running = current.get(request.trajectory)
        if (running !== undefined) await engine.abort(running.id)
        await engine.release(request.trajectory)
        return undefined
      }
      case 'update': {
        const { version, digest, adapter } = request.weights
        const turn = ++updates
        const isAdapter = adapter !== undefined && engine.capabilities.takesAdapters === true
        const taken: PublishedWeights = isAdapter ? adapterOf(request.weights, adapter) : request.weights
        // The update is queued before its weights are fetched: a sleep that is requested meanwhile runs after it.
        const isTaken = await inTurn(async () => {
          // An update is skipped if a later one was requested before its turn came or while its weights were fetched.
          if (turn < updates) return false
          const directory = await weightsHere(taken, { signal, ...fetching })
          if (turn < updates) return false
          const { manifest, adapterConfig } = taken
          const update = {
            ...{ version, digest: taken.digest, directory, keepKv, isAdapter },
            ...(manifest === undefined ? {} : { manifest }),
            ...(adapterConfig === undefined ? {} : { adapterConfig }),
          }
          if (!isAsleep) await engine.updateWeights(update)
          else if (engine.wake === undefined) throw new Error(`engine ${engine.id} is asleep and has no method wake`)
          else await engine.wake(update)
          isAsleep = false
          return true
        })
        if (!isTaken) return undefined
        return {
          facts: [{ type: 'weights.applied', at: fx.now(), engine: engine.id, version, digest }],
          commands: [],
        }
      }
      case 'sleep':
        return inTurn(async () => {
          await engine.sleep?.()
          isAsleep = engine.sleep !== undefined
          return said('engine.slept')
        })
      case 'wake':
        return inTurn(async () => {
          if (isAsleep) await engine.wake?.()
          isAsleep = false
          return said('engine.woke')
        })
      case 'status':
        return { facts: [], commands: [await engine.status()] }
    }
  }
}

/** True if the engine's loss has been reported, or is reported within `lostMs`. */
const isLost = ({ lost }: Engine): Promise<boolean> =>
  within(lost, lostMs, () => new Error('not lost')).then(
    () => true,
    () => false,
  )

/**
 * True if the newer attempt `other` may take over the running generation: it has the same turn, seed, `maxTokens` and
 * length of context, so it would sample the same tokens; and fewer than `mostBefore` attempts took it over before.
 */
function isShared({ ask: one, before }: Running, other: GenerateTurn): boolean {
  const isSame = one.turn === other.turn && one.seed === other.seed && one.context.length === other.context.length
  return isSame && one.maxTokens === other.maxTokens && before < mostBefore
}

const interrupted = (fact: Omit<TurnInterrupted, 'type'>): Decision => ({
  facts: [{ type: 'turn.interrupted', ...fact }],
  commands: [],
})

function toRequest(id: string, ask: GenerateTurn): GenerateRequest {
  return {
    requestId: id,
    trajectory: ask.trajectory,
    turn: ask.turn,
    promptTokens: ask.promptTokens,
    context: ask.context,
    resumedTokens: ask.resumedTokens,
    maxTokens: ask.maxTokens,
    sampling: ask.sampling,
    seed: ask.seed,
    priority: ask.order,
    keep: true,
  }
}
