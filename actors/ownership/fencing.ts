/**
 * Fencing (ignoring what a replaced process writes) for readers of owners' and learners' facts: curriculum, evaluator,
 * learner, inference, and every reader that waits for the end of a run or shows a run, live or from its log.
 *
 * in   a behaviour
 * out  the same behaviour without the facts that an owner wrote after another process had claimed its partition, and
 *      without those that a learner, curriculum or evaluator wrote after another process had taken it over
 * Invariant: whether a fact counts follows from its epoch (log offset of its writer's claim) and the claims before it
 * in its own partition, so every refold (rebuilding a state from the log) finds the same. Facts without an epoch count.
 */
import type { Message } from '../../messages'
import type { Fact } from '../../messages/facts'
import type { Epoch } from '../../messages/ids'
import { type Behaviour, nothing, type Origin } from '../../runtime/host/behaviour'

/** Epochs of the owner and of the curriculum whose facts count in one partition. */
interface Claims {
  /** Offset of the latest `partition.claimed` (on the topic `learner`: `learner.claimed`); undefined before the first. */
  readonly owner: number | undefined
  /** Epoch of the curriculum, and of the learner in the same process, whose facts count; −1 before any is known. */
  readonly curriculum: number
}

export interface FencedState<S> {
  /** Latest claims of each partition (`topic#partition`). */
  readonly claims: ReadonlyMap<string, Claims>
  readonly inner: S
}

/**
 * Wraps a behaviour so that it folds (applies to its state) only facts that count. `own`, the epoch of the behaviour's
 * own claim, is added to those of its facts that record an epoch (function `under`); once another process has claimed
 * later, `pending` returns nothing.
 */
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

/**
 * Makes a filter for readers. The reader passes it every entry in each partition's order; it returns true if the entry
 * counts, that is, if no later owner or curriculum has replaced its writer.
 */
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

/**
 * True if the message carries an epoch that is older than `claimed`, the offset of the latest claim before it: another
 * owner had then replaced its writer. False if the message has no epoch or `claimed` is undefined.
 */
export function isStale(claimed: number | undefined, message: Message): boolean {
  return claimed !== undefined && 'epoch' in message && message.epoch !== undefined && message.epoch < claimed
}

export const noCurriculum = -1

/**
 * True if the message comes from a curriculum that another one had replaced before the message was written. `epoch`:
 * that of the latest curriculum known before the message. False if the message has no `learnerEpoch`.
 */
export function isReplaced(epoch: number, message: Message): boolean {
  return 'learnerEpoch' in message && message.learnerEpoch !== undefined && message.learnerEpoch < epoch
}

/**
 * Returns the epoch of the latest curriculum known after a message: the message's own, if it is higher than `epoch`.
 * Claims carry the epoch, and so do requests, for readers that begin after the claim.
 */
export function curriculumAfter(epoch: number, message: Message): number {
  return 'learnerEpoch' in message ? Math.max(epoch, message.learnerEpoch ?? epoch) : epoch
}

const unclaimed: Claims = { owner: undefined, curriculum: noCurriculum }
const placeOf = ({ topic, partition }: Origin) => `${topic}#${partition}`

/** Returns the partition's claims after a message; undefined if a replaced owner or curriculum wrote the message. */
function claimsAfter(before: Claims, message: Message, { topic, offset }: Origin): Claims | undefined {
  if (isStale(before.owner, message) || isReplaced(before.curriculum, message)) return undefined
  const isClaim = message.type === (topic === 'learner' ? 'learner.claimed' : 'partition.claimed')
  const owner = isClaim ? offset : before.owner
  const named = curriculumAfter(before.curriculum, message)
  const curriculum = message.type === 'learner.claimed' ? Math.max(named, offset) : named
  return owner === before.owner && curriculum === before.curriculum ? before : { owner, curriculum }
}

/** Adds `own`, the epoch of the writer's claim, to those facts of curriculum and evaluator that record an epoch. */
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
