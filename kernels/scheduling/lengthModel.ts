/**
 * How long rollouts become, learnt while they run: how likely one ends at each length, for all and for each group.
 *
 * in   lengths of rollouts as they grow and end        out  the chance to be still running so many tokens later
 * Those that end first are the short ones, so lengths of ended rollouts alone would mislead: every rollout counts for each
 * stretch of its budget that it has passed (a hazard per stretch, as in the product-limit estimate; Kaplan and Meier, 1958).
 * A group's members are alike: its hazard is the common one times a factor with a gamma prior (Clayton, 1978).
 * Before anything is known, a rollout is as likely to end in any stretch of its budget as in any other.
 */
import type { GroupId, TrajectoryId } from '../../messages/ids'

const stretches = 32
/** Rollouts that the assumption about lengths weighs as much as, and ends of a group that its factor of one does. */
const priorRollouts = 4
const priorEnds = 2
/** Observed ends after which older ones count half: the model that writes them changes. */
const memory = 4096

interface Seen {
  readonly group: GroupId
  /** Share of its budget that it is known to have passed. */
  passed: number
}

interface Group {
  members: number
  ends: number
  /** Ends that the common hazard would have let expect. */
  expected: number
}

export class LengthModel {
  private readonly ends = new Float64Array(stretches)
  private readonly exposure = new Float64Array(stretches)
  /** [stretches + 1] the common hazard, summed up to the beginning of each stretch. */
  private readonly summed = new Float64Array(stretches + 1)
  private readonly groups = new Map<GroupId, Group>()
  private readonly rollouts = new Map<TrajectoryId, Seen>()
  private total = 0
  private stale = true

  /** A rollout has used so much of its budget of tokens after the prompt. */
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

  /** It is over, with the length last observed. `counts` is false where that says nothing. */
  finish(trajectory: TrajectoryId, counts: boolean): void {
    const seen = this.rollouts.get(trajectory)
    if (seen === undefined) return
    this.rollouts.delete(trajectory)
    const group = this.groups.get(seen.group)!
    group.members--
    // One that used its whole budget did not end by itself: it has passed every stretch, which is counted already.
    if (counts && seen.passed < 1) {
      this.ends[Math.floor(seen.passed * stretches)]!++
      group.ends++
      this.total++
      this.stale = true
      if (this.total > memory) this.forgetHalf()
    }
    if (group.members === 0) this.groups.delete(seen.group)
  }

  /** How much likelier to end than others a group's members are, at any length: below 1 for the long ones. */
  factor(group: GroupId): number {
    const known = this.groups.get(group)
    return known === undefined ? 1 : (known.ends + priorEnds) / (known.expected + priorEnds)
  }

  /** The chance that a member of the group passes so much of the common hazard: its factor is not known for sure. */
  survivalOf(group: GroupId): (hazard: number) => number {
    const known = this.groups.get(group)
    const ends = (known?.ends ?? 0) + priorEnds
    const expected = (known?.expected ?? 0) + priorEnds
    return hazard => (expected / (expected + hazard)) ** ends
  }

  /** The common hazard summed over a budget's first `share`. At its end every rollout is over, whatever this says. */
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
      // Of rollouts equally likely to end anywhere, 1 in (n − i) of those that reach stretch i end there.
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
