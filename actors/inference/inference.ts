/**
 * Inference: drives one engine.
 *
 * in   turn.assign, trajectory.evict (for this engine), step.started | rejected, weights.published, ticks
 * out  turn.completed | turn.interrupted, weights.applied, engine.slept | woke, engine.status: all through requests to
 *      the engine
 * Invariant: every assignment is answered by a fact that echoes its attempt, unless a newer attempt of the turn takes
 * over its generation, the engine is lost before it samples a token, or the actor ends first. A restart loses no state:
 * the weights and the trainer's work are read from the log, and the coordinator asks again for a dead engine's turns.
 */
import type { AssignTurn, EvictTrajectory, GenerateTurn } from '../../messages/commands'
import type { WeightsPublished } from '../../messages/facts'
import type { EngineId, TrajectoryId } from '../../messages/ids'
import { type Behaviour, nothing } from '../../runtime/host/behaviour'

export type InferenceRequest =
  | { readonly kind: 'generate'; readonly ask: GenerateTurn }
  | { readonly kind: 'evict'; readonly trajectory: TrajectoryId }
  | { readonly kind: 'update'; readonly weights: WeightsPublished }
  | { readonly kind: 'status' }
  | { readonly kind: 'sleep' }
  | { readonly kind: 'wake' }

export interface InferenceState {
  /** Newest weights that the learner published. */
  readonly weights: WeightsPublished | null
  /**
   * True while the trainer works: before the first weights, and from step.started until the step's weights are
   * published or the step is rejected.
   */
  readonly trains: boolean
}

/**
 * Makes the inference behaviour. `sleeps`: true if the engine sleeps while the trainer works (`hardware.plan`
 * colocated).
 */
export function inference(
  id: EngineId,
  sleeps = false,
): Behaviour<InferenceState, AssignTurn | EvictTrajectory, InferenceRequest> {
  return {
    name: `inference.${id}`,
    initial: () => ({ weights: null, trains: true }),
    evolve(state, fact) {
      switch (fact.type) {
        case 'step.started':
          return state.trains ? state : { ...state, trains: true }
        case 'step.rejected':
          return state.trains ? { ...state, trains: false } : state
        case 'weights.published':
          return fact.version === state.weights?.version && !state.trains ? state : { weights: fact, trains: false }
        default:
          return state
      }
    },
    decide(_state, input) {
      switch (input.type) {
        case 'turn.assign':
          return input.engine === id ? { ...nothing, requests: [{ kind: 'generate', ask: input.ask }] } : nothing
        case 'trajectory.evict':
          return input.engine === id
            ? { ...nothing, requests: [{ kind: 'evict', trajectory: input.trajectory }] }
            : nothing
        case 'weights.published':
          return { ...nothing, requests: [{ kind: 'update', weights: input }] }
        case 'step.started':
          return sleeps ? { ...nothing, requests: [{ kind: 'sleep' }] } : nothing
        case 'step.rejected':
          return sleeps ? { ...nothing, requests: [{ kind: 'wake' }] } : nothing
        case 'tick':
          return { ...nothing, requests: [{ kind: 'status' }] }
        default:
          return nothing
      }
    },
    pending({ weights, trains }) {
      if (sleeps && trains) return { ...nothing, requests: [{ kind: 'sleep' }] }
      return weights === null ? nothing : { ...nothing, requests: [{ kind: 'update', weights }] }
    },
  }
}
