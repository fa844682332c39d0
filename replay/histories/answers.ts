/**
 * Finds decisions of one partition's owner that rest on facts that do not count: an answer to a former attempt, an
 * answer or a decision under a former owner, a request of a former curriculum (the actor that requests rollouts).
 *
 * in   the facts of one partition of `trajectories`, in the log's order
 * out  violations; for each fact whether it counts
 * Basis: an owner decides from the counted facts before its decision, perhaps without the newest of them. A decision
 * that needs a fact which is not among them is reported only if an ignored fact would have supplied it.
 */
import type { Fact, GroupClosed, RolloutRequested, TrajectoryFact } from '../../messages/facts'
import { type GroupId, groupOf, memberOf, type TrajectoryId, trajectoryId } from '../../messages/ids'
import { ModelRollout } from './modelRollout'
import type { Violation } from './violation'

interface ModelGroup {
  readonly purpose: RolloutRequested['purpose']
  readonly members: Map<number, ModelRollout>
  isClosed: boolean
  /** True once the group was selected or rejected; for a group that is not trained on, once it is closed. */
  isDecided: boolean
}

type Decision = Extract<TrajectoryFact, { readonly epoch: unknown; readonly trajectory: unknown }>

export class Answers {
  readonly violations: Violation[] = []
  private readonly groups = new Map<GroupId, ModelGroup>()
  /** Position of the request that a replaced curriculum wrote, by rollout, until another request of it counts. */
  private readonly replaced = new Map<TrajectoryId, string>()
  private highestOrder = -1
  private curriculum = -1

  /**
   * Takes the next fact; returns true if it counts. `isCurrent`: false if the fact carries an epoch other than that of
   * the latest claim.
   */
  take(fact: TrajectoryFact, isCurrent: boolean, place: string): boolean {
    switch (fact.type) {
      case 'partition.claimed':
      case 'scheduler.claimed':
        return true
      case 'curriculum.claimed': {
        const isNewer = fact.learnerEpoch > this.curriculum
        this.curriculum = Math.max(this.curriculum, fact.learnerEpoch)
        return isNewer
      }
      case 'rollout.requested':
        return this.requested(fact, place)
      case 'group.closed':
        return this.closed(fact, isCurrent, place)
      case 'group.selected':
      case 'group.rejected': {
        const group = this.groups.get(fact.group)
        if (!isCurrent || group === undefined || !group.isClosed || group.isDecided) return false
        group.isDecided = true
        this.forget(fact.group, group)
        return true
      }
      case 'rollout.started':
        return this.groups.get(groupOf(fact.trajectory))?.members.has(memberOf(fact.trajectory)) === true
      default:
        return this.ofRollout(fact, isCurrent, place)
    }
  }

  private requested(fact: RolloutRequested, place: string): boolean {
    const group = this.groups.get(fact.group)
    if (group?.members.has(fact.member) || fact.order <= this.highestOrder) return false
    if (fact.learnerEpoch !== undefined && fact.learnerEpoch < this.curriculum) {
      this.replaced.set(fact.trajectory, place)
      return false
    }
    this.replaced.delete(fact.trajectory)
    const open = group ?? { purpose: fact.purpose, members: new Map(), isClosed: false, isDecided: false }
    open.members.set(fact.member, new ModelRollout(fact))
    this.groups.set(fact.group, open)
    this.highestOrder = fact.order
    this.curriculum = Math.max(this.curriculum, fact.learnerEpoch ?? this.curriculum)
    return true
  }

  private ofRollout(
    fact: Exclude<TrajectoryFact, { readonly group: unknown } | { readonly partition: unknown }>,
    isCurrent: boolean,
    place: string,
  ): boolean {
    const id = groupOf(fact.trajectory)
    const group = this.groups.get(id)
    const rollout = group?.members.get(memberOf(fact.trajectory))
    const isDecision = 'epoch' in fact
    if (group === undefined || rollout === undefined) {
      const request = this.replaced.get(fact.trajectory)
      if (isDecision && isCurrent && request !== undefined)
        this.accuse(fact, [request, place], `${fact.trajectory} was requested by a replaced curriculum`)
      return false
    }
    if (fact.type === 'reward.assigned' || fact.type === 'reward.failed') {
      const counts = rollout.isFinished && !rollout.isJudged
      rollout.isJudged ||= counts
      rollout.hasReward ||= counts && fact.type === 'reward.assigned' && !rollout.hasFailed && !group.isClosed
      if (!counts) rollout.ignored.set('reward', place)
      return counts
    }
    // In an agent's session the turns that answer its calls come in any order: none of their facts is judged or counts.
    if ((fact as Fact).type === 'session.opened') rollout.isLed = true
    if (rollout.isLed && fact.type.startsWith('turn.')) return false
    if (isDecision && isCurrent) this.judge(fact, rollout, place)
    const counts = (!isDecision || isCurrent) && rollout.take(fact)
    if (!counts) rollout.ignored.set(keyOf(fact), place)
    else if (rollout.isFinished) this.forget(id, group)
    return counts
  }

  /** Reports a current decision that needs a fact which does not count, if an ignored fact would have supplied it. */
  private judge(fact: Decision, rollout: ModelRollout, place: string): void {
    const { ignored } = rollout
    const ahead = (why: string, ...keys: readonly string[]) => {
      const places = keys.flatMap(key => ignored.get(key) ?? [])
      if (places.length > 0) this.accuse(fact, [...places, place], why)
    }
    switch (fact.type) {
      case 'turn.asked':
        if (fact.turn > rollout.turn)
          ahead(`turn ${fact.turn} follows from one that is not over`, ...keysBefore(fact.turn))
        else if (fact.turn === rollout.turn && !rollout.isAnswered && fact.contextTokens > rollout.tokens) {
          const why = `its context has ${fact.contextTokens} tokens, but ${rollout.tokens} count`
          ahead(why, ...keysBefore(fact.turn), `turn.interrupted#${fact.turn}`, `turn.completed#${fact.turn}`)
        }
        return
      case 'tool.asked':
        if (fact.turn > rollout.turn || (fact.turn === rollout.turn && !rollout.isAnswered))
          ahead(`turn ${fact.turn} has no answer that counts`, `turn.completed#${fact.turn}`)
        return
      case 'context.appended':
        if (fact.turn > rollout.turn || (fact.turn === rollout.turn && !rollout.isAppendable)) {
          const keys = [`turn.completed#${fact.turn}`, ...callKeys(ignored, fact.turn)]
          ahead(`turn ${fact.turn} or a call of it has no answer that counts`, ...keys)
        }
        return
      case 'rollout.finished':
        if (fact.turns > rollout.completions)
          ahead(`it says ${fact.turns} turns, but ${rollout.completions} count`, `turn.completed#${rollout.turn}`)
        return
    }
  }

  private closed(fact: GroupClosed, isCurrent: boolean, place: string): boolean {
    const group = this.groups.get(fact.group)
    if (!isCurrent || group === undefined || group.isClosed) return false
    for (const member of fact.rewarded) {
      const rollout = group.members.get(member)
      const reward = rollout?.ignored.get('reward')
      if (rollout?.hasReward !== false || reward === undefined) continue
      const why = `no reward of ${trajectoryId(fact.group, member)} counts`
      this.accuse(fact, [reward, place], why)
    }
    group.isClosed = true
    group.isDecided = group.purpose !== 'train'
    for (const rollout of group.members.values()) rollout.close()
    this.forget(fact.group, group)
    return true
  }

  private accuse({ type }: TrajectoryFact, places: readonly string[], why: string): void {
    const [answer] = places
    const message = `${type} follows from ${answer}, which does not count: ${why}`
    this.violations.push({ kind: 'former-answer', places, message })
  }

  /** Frees a group that is closed and decided, and whose members have all ended, as its owner does. */
  private forget(id: GroupId, group: ModelGroup): void {
    const isOver =
      group.isClosed && group.isDecided && [...group.members.values()].every(({ isFinished }) => isFinished)
    if (isOver) this.groups.delete(id)
  }
}

const keyOf = (fact: { readonly type: string; readonly turn?: number; readonly call?: number }): string =>
  `${fact.type}#${fact.turn ?? ''}${fact.call === undefined ? '' : `#${fact.call}`}`

/** Keys of the facts that have to count before turn `turn` is asked. */
const keysBefore = (turn: number): readonly string[] => [`turn.completed#${turn - 1}`, `context.appended#${turn - 1}`]

const callKeys = (ignored: ReadonlyMap<string, string>, turn: number): readonly string[] =>
  [...ignored.keys()].filter(key => key.startsWith(`tool.completed#${turn}#`))
