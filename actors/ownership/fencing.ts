/**
 * Fencing, for those who follow what owners and learners say without being one: curriculum, evaluator, learner, inference,
 * and whoever waits for the end of a run or shows one, live or from its log.
 *
 * in   a behaviour        out  the same, which does not hear what an owner said after another had claimed its partition,
 *      nor what a curriculum or an evaluator said after another had taken their part
 * Invariant: what is said counts under the epoch of the latest claim before it in its own partition, which is the same in
 * every refold. A claim itself, and a fact without an epoch, is passed on.
 */
import type { Message } from '../../messages'
import type { Fact } from '../../messages/facts'
import type { Epoch } from '../../messages/ids'
import { type Behaviour, nothing, type Origin } from '../../runtime/host/behaviour'

/** Who may speak in a partition. */
interface Claims {
  /** Offset of the latest claim; undefined before the first. */
  readonly owner: number | undefined
  /** Epoch of the curriculum that counts. */
  readonly curriculum: number
}

export interface FencedState<S> {
  /** By partition. */
  readonly claims: ReadonlyMap<string, Claims>
  readonly inner: S
}

/** `own`: the claim under which the behaviour itself speaks; what it says names it, and once another has claimed it says nothing more. */
export function fenced<S, I, R>(behaviour: Behaviour<S, I, R>, own?: Epoch): Behaviour<FencedState<S>, I, R> {
  const { decide } = behaviour
  const isOver = ({ claims }: FencedState<S>) =>
    own !== undefined && [...claims.values()].some(({ curriculum }) => curriculum > own)
  return {
    name: behaviour.name,
    initial: () => ({ claims: new Map(), inner: behaviour.initial() }),
    evolve(state, fact, origin) {
      const place = placeOf(origin)
      const before = state.claims.get(place) ?? unclaimed
      const after = claimsAfter(before, fact, origin)
      if (after === undefined) return state
      const inner = behaviour.evolve(state.inner, fact, origin)
      if (after !== before) return { claims: new Map(state.claims).set(place, after), inner }
      return inner === state.inner ? state : { ...state, inner }
    },
    ...(decide === undefined ? {} : { decide: ({ inner }, input, fx) => decide(inner, input, fx) }),
    pending(state, fx) {
      if (isOver(state)) return nothing
      const said = behaviour.pending(state.inner, fx)
      return own === undefined ? said : { ...said, facts: said.facts.map(fact => under(own, fact)) }
    },
  }
}

/** For who only reads: asked about every entry, in each partition's order, it says whether the entry counts. */
export function fence(): (entry: Origin & { readonly message: Message }) => boolean {
  const claims = new Map<string, Claims>()
  return entry => {
    const place = placeOf(entry)
    const before = claims.get(place) ?? unclaimed
    const after = claimsAfter(before, entry.message, entry)
    if (after !== undefined && after !== before) claims.set(place, after)
    return after !== undefined
  }
}

/** Whether another owner had claimed the partition before this was said. */
export function isStale(claimed: number | undefined, message: Message): boolean {
  return claimed !== undefined && 'epoch' in message && message.epoch !== undefined && message.epoch < claimed
}

export const noCurriculum = -1

/** Whether a fact is of a curriculum that another had replaced before this was said. `epoch`: of the one that counts. */
export function isReplaced(epoch: number, message: Message): boolean {
  return 'learnerEpoch' in message && message.learnerEpoch !== undefined && message.learnerEpoch < epoch
}

/** Whose requests count after a fact. They name their curriculum too, for who begins to read behind its claim. */
export function curriculumAfter(epoch: number, message: Message): number {
  return 'learnerEpoch' in message ? Math.max(epoch, message.learnerEpoch ?? epoch) : epoch
}

const unclaimed: Claims = { owner: undefined, curriculum: noCurriculum }
const placeOf = ({ topic, partition }: Origin) => `${topic}#${partition}`

/** Who may speak after a fact; undefined: it does not count. */
function claimsAfter(before: Claims, message: Message, { topic, offset }: Origin): Claims | undefined {
  if (isStale(before.owner, message) || isReplaced(before.curriculum, message)) return undefined
  const isClaim = message.type === (topic === 'learner' ? 'learner.claimed' : 'partition.claimed')
  const owner = isClaim ? offset : before.owner
  const named = curriculumAfter(before.curriculum, message)
  const curriculum = message.type === 'learner.claimed' ? Math.max(named, offset) : named
  return owner === before.owner && curriculum === before.curriculum ? before : { owner, curriculum }
}

/** With the claim under which it is said, where the fact can name it and does not yet. */
function under(own: Epoch, fact: Fact): Fact {
  switch (fact.type) {
    case 'evaluation.completed':
    case 'tasks.measured':
    case 'step.tallied':
    case 'alarm.raised':
    case 'run.finished':
      return { ...fact, learnerEpoch: own }
    case 'stage.changed':
      return { ...fact, epoch: own }
    default:
      return fact
  }
}
