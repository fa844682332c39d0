/**
 * Inference: drives one engine.
 *
 * in   turn.assign, trajectory.evict (for this engine), weights.published, ticks
 * out  turn.completed | turn.interrupted, weights.applied, engine.status: all through requests to the engine
 * Invariant: every assignment is answered by a fact that echoes its attempt, unless a newer attempt of the turn takes
 * over its generation or the actor ends first. The state holds nothing that a restart would lose: the coordinator asks
 * again for the turns of an engine that died.
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

export interface InferenceState {
  /** Newest weights that the learner published. */
  readonly weights: WeightsPublished | null
}

export function inference(id: EngineId): Behaviour<InferenceState, AssignTurn | EvictTrajectory, InferenceRequest> {
  return {
    name: `inference.${id}`,
    initial: () => ({ weights: null }),
    evolve(state, fact) {
      if (fact.type !== 'weights.published' || fact.version === state.weights?.version) return state
      return { weights: fact }
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
        case 'tick':
          return { ...nothing, requests: [{ kind: 'status' }] }
        default:
          return nothing
      }
    },
    pending: ({ weights }) => (weights === null ? nothing : { ...nothing, requests: [{ kind: 'update', weights }] }),
  }
}
