/**
 * Estimates a trajectory's final length from the lengths of its group.
 *
 * in   lengths of members as they run and finish
 * out  a quantile of a member's final length, given its present length
 * Short members finish first, so a quantile of only the finished lengths would be too small. Running members count as
 * "longer than now" (right-censored; product-limit estimate, Kaplan and Meier, 1958).
 * Invariant: an estimate is at least the present length, and at most the bound or the present length, whichever is
 * larger. A group is removed with its last running member.
 */
import type { GroupId, TrajectoryId } from '../../messages/ids'

export interface GrowthOptions {
  /**
   * Share of a group's members that should end within the estimated length; null: the estimate is always the member's
   * upper bound. Default 0.9.
   */
  readonly quantile?: number | null
  /**
   * Number of a group's members that must have finished before an estimate uses the group's lengths; until then the
   * estimate is the member's upper bound. Default 4.
   */
  readonly minFinished?: number
}

interface Group {
  /** Final lengths of finished members in tokens, ascending. */
  readonly finished: number[]
  readonly live: Map<TrajectoryId, number>
}

export class GroupLengths {
  private readonly groups = new Map<GroupId, Group>()
  private readonly quantile: number | null
  private readonly minFinished: number

  constructor(options: GrowthOptions = {}) {
    this.quantile = options.quantile === undefined ? 0.9 : options.quantile
    this.minFinished = options.minFinished ?? 4
    if (this.quantile !== null && !(this.quantile > 0 && this.quantile < 1)) {
      throw new RangeError(`quantile is ${this.quantile}, expected a number above 0 and below 1, or null`)
    }
  }

  /** Records a running member's present length: prompt and response together, in tokens. */
  observe(group: GroupId, trajectory: TrajectoryId, tokens: number): void {
    let known = this.groups.get(group)
    if (known === undefined) {
      known = { finished: [], live: new Map() }
      this.groups.set(group, known)
    }
    known.live.set(trajectory, tokens)
  }

  /**
   * Records that a member ended with the length last observed. @param counts false if the member failed, so that its
   * length is no evidence
   */
  finish(group: GroupId, trajectory: TrajectoryId, counts = true): void {
    const known = this.groups.get(group)
    const tokens = known?.live.get(trajectory)
    if (known === undefined || tokens === undefined) return
    known.live.delete(trajectory)
    if (known.live.size === 0) this.groups.delete(group)
    else if (counts) {
      let at = known.finished.length
      while (at > 0 && known.finished[at - 1]! > tokens) at--
      known.finished.splice(at, 0, tokens)
    }
  }

  /**
   * Returns the estimated final length, in tokens, of a member with `tokens` so far: the quantile that the option
   * `quantile` sets; the upper bound `boundTokens` if that option is null, if fewer than `minFinished` members have
   * finished, or if no finished length reaches that quantile. The result is at least `tokens` and at most the larger of
   * `tokens` and `boundTokens`.
   */
  estimate(group: GroupId, trajectory: TrajectoryId, tokens: number, boundTokens: number): number {
    const bound = Math.max(tokens, boundTokens)
    const known = this.groups.get(group)
    if (this.quantile === null || known === undefined || known.finished.length < this.minFinished) return bound
    let surviving = 1
    const { finished, live } = known
    for (let i = 0; i < finished.length; i++) {
      const length = finished[i]!
      if (length <= tokens) continue
      let atRisk = finished.length - i
      for (const [other, reached] of live) if (reached >= length && other !== trajectory) atRisk++
      surviving *= 1 - 1 / atRisk
      if (surviving <= 1 - this.quantile + 1e-12) return Math.min(length, bound)
    }
    return bound
  }
}
