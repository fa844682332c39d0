/**
 * Fencing, for those who follow what owners decide without owning it: curriculum, evaluator, learner, inference.
 *
 * in   a behaviour        out  the same, which does not hear what an owner said after another had claimed its partition,
 *      nor what a curriculum asked for after another had
 * Invariant: a decision counts under the epoch of the latest claim before it in its own partition, which is the same in
 * every refold. A claim itself, and a fact without an epoch, is passed on.
 */
import type { Fact } from '../messages/facts'
import type { Epoch } from '../messages/ids'
import { type Behaviour, nothing, type Origin } from '../runtime/behaviour'

export interface FencedState<S> {
  /** Offset of the latest claim, by partition. */
  readonly epochs: ReadonlyMap<string, number>
  /** Epoch of the curriculum that counts, by partition. */
  readonly curricula: ReadonlyMap<string, number>
  readonly inner: S
}

/** `own`: under which epoch the behaviour itself speaks as a curriculum; once another has claimed it, it says nothing more. */
export function fenced<S, I, R>(behaviour: Behaviour<S, I, R>, own?: Epoch): Behaviour<FencedState<S>, I, R> {
  const { decide } = behaviour
  const isOver = ({ curricula }: FencedState<S>) =>
    own !== undefined && [...curricula.values()].some(epoch => epoch > own)
  return {
    name: behaviour.name,
    initial: () => ({ epochs: new Map(), curricula: new Map(), inner: behaviour.initial() }),
    evolve(state, fact, origin) {
      const place = `${origin.topic}#${origin.partition}`
      const { epochs } = state
      const before = state.curricula.get(place) ?? noCurriculum
      if (isStale(epochs.get(place), fact) || isReplaced(before, fact)) return state
      const after = curriculumAfter(before, fact)
      const curricula = after === before ? state.curricula : new Map(state.curricula).set(place, after)
      const inner = behaviour.evolve(state.inner, fact, origin)
      if (isClaim(fact, origin)) return { epochs: new Map(epochs).set(place, origin.offset), curricula, inner }
      return inner === state.inner && curricula === state.curricula ? state : { epochs, curricula, inner }
    },
    ...(decide === undefined ? {} : { decide: ({ inner }, input, fx) => decide(inner, input, fx) }),
    pending: (state, fx) => (isOver(state) ? nothing : behaviour.pending(state.inner, fx)),
  }
}

/** Whether another owner had claimed the partition before this was said. */
export function isStale(claimed: number | undefined, fact: Fact): boolean {
  return claimed !== undefined && 'epoch' in fact && fact.epoch !== undefined && fact.epoch < claimed
}

export const noCurriculum = -1

/** Whether a fact is of a curriculum that another had replaced before this was said. `epoch`: of the one that counts. */
export function isReplaced(epoch: number, fact: Fact): boolean {
  return 'learnerEpoch' in fact && fact.learnerEpoch !== undefined && fact.learnerEpoch < epoch
}

/** Whose requests count after a fact. They name their curriculum too, for who begins to read behind its claim. */
export function curriculumAfter(epoch: number, fact: Fact): number {
  return 'learnerEpoch' in fact ? Math.max(epoch, fact.learnerEpoch ?? epoch) : epoch
}

const isClaim = (fact: Fact, { topic }: Origin) =>
  fact.type === (topic === 'learner' ? 'learner.claimed' : 'partition.claimed')
