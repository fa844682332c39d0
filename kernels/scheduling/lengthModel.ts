/**
 * Learns how long rollouts become while they run: the hazard of ending at each length (the rate at which rollouts that
 * reach it end there), for all rollouts and for each group.
 *
 * in   lengths of rollouts as they grow and end        out  the probability that a rollout still runs some tokens later
 * Short rollouts end first, so a count of only the ended rollouts would mislead. Every rollout counts in each stretch
 * of its budget that it has passed (a hazard per stretch, as in the product-limit estimate; Kaplan and Meier, 1958).
 * Members of a group are alike: the group's hazard is the common hazard times a factor with a gamma prior (Clayton,
 * 1978). The prior for the common hazard: a rollout is equally likely to end in any stretch of its budget.
 */
import type { GroupId, TrajectoryId } from '../../messages/ids'

/** Number of equal parts (stretches) into which a rollout's token budget is divided. */
const stretches = 32
/**
 * Weights of the priors. priorRollouts: weight of the common hazard's prior, as a number of rollouts. priorEnds: weight
 * of the prior of a group's factor (mean 1), as a number of ended rollouts.
 */
const priorRollouts = 4
const priorEnds = 2
/**
 * Number of ended rollouts after which the counts of the common hazard are halved, since the policy that writes the
 * rollouts changes.
 */
const maxEnds = 4096

interface Observed {
  readonly group: GroupId
  /** Share of its token budget that the rollout is known to have used. */
  passed: number
}

interface Group {
  members: number
  ends: number
  /** Number of the group's members that should have ended by now if the common hazard held for them. */
  expected: number
}

export class LengthModel {
  private readonly ends = new Float64Array(stretches)
  private readonly exposure = new Float64Array(stretches)
  /** [stretches + 1] Common hazard, accumulated up to the start of each stretch. */
  private readonly summed = new Float64Array(stretches + 1)
  private readonly groups = new Map<GroupId, Group>()
  private readonly rollouts = new Map<TrajectoryId, Observed>()
  private total = 0
  private stale = true

  /** Records the share of its token budget (tokens after the prompt) that a rollout has used. */
  observe(group: GroupId, trajectory: TrajectoryId, share: number): void {
    let seen = this.rollouts.get(trajectory)
    if (seen === undefined) {
      seen = { group, passed: 0 }
      this.rollouts.set(trajectory, seen)
      const known = this.groups.get(group)
      if (known === undefined) this.groups.set(group, { members: 1, ends: 0, expected: 0 })
      else known.members++
    }
    const to = Math.min(1, share)
    if (to <= seen.passed) return
    this.groups.get(group)!.expected += this.cumulative(to) - this.cumulative(seen.passed)
    for (let at = seen.passed * stretches; at < to * stretches; at = Math.floor(at) + 1) {
      this.exposure[Math.floor(at)]! += Math.min(Math.floor(at) + 1, to * stretches) - at
    }
    seen.passed = to
    this.stale = true
  }

  /**
   * Records that a rollout ended with the length last observed. @param counts false if it failed, so that its length is
   * no evidence
   */
  finish(trajectory: TrajectoryId, counts: boolean): void {
    const seen = this.rollouts.get(trajectory)
    if (seen === undefined) return
    this.rollouts.delete(trajectory)
    const group = this.groups.get(seen.group)!
    group.members--
    // A rollout that used up its budget was stopped by the budget, so it does not count as an end. `observe` has
    // counted it in every stretch that it passed.
    if (counts && seen.passed < 1) {
      this.ends[Math.floor(seen.passed * stretches)]!++
      group.ends++
      this.total++
      this.stale = true
      if (this.total > maxEnds) this.forgetHalf()
    }
    if (group.members === 0) this.groups.delete(seen.group)
  }

  /** Returns a group's hazard relative to the common one: below 1 for a group of long rollouts. */
  factor(group: GroupId): number {
    const known = this.groups.get(group)
    return known === undefined ? 1 : (known.ends + priorEnds) / (known.expected + priorEnds)
  }

  /**
   * Returns a function from a cumulative common hazard to the probability that a member survives it, averaged over the
   * gamma distribution of the group's factor.
   */
  survivalOf(group: GroupId): (hazard: number) => number {
    const known = this.groups.get(group)
    const ends = (known?.ends ?? 0) + priorEnds
    const expected = (known?.expected ?? 0) + priorEnds
    return hazard => (expected / (expected + hazard)) ** ends
  }

  /**
   * Returns the common hazard accumulated over the first `share` of a budget. At share 1 the budget stops every
   * rollout, so callers must count it as ended there, whatever this returns.
   */
  cumulative(share: number): number {
    if (this.stale) this.sum()
    if (share >= 1) return this.summed[stretches]!
    const at = share * stretches
    const whole = Math.floor(at)
    const before = this.summed[whole]!
    return before + (this.summed[whole + 1]! - before) * (at - whole)
  }

  private sum(): void {
    this.stale = false
    for (let i = 0; i < stretches; i++) {
      // The prior assumes that rollouts are equally likely to end in any stretch: of n (= `stretches`) rollouts, n − i
      // reach stretch i, and 1 ends in it.
      const assumed = (stretches - i - 0.5) / stretches
      const ends = this.ends[i]! + priorRollouts / stretches
      this.summed[i + 1] = this.summed[i]! + ends / (this.exposure[i]! + priorRollouts * assumed)
    }
  }

  private forgetHalf(): void {
    this.total /= 2
    for (let i = 0; i < stretches; i++) {
      this.ends[i]! /= 2
      this.exposure[i]! /= 2
    }
  }
}
