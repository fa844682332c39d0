/**
 * Compares a recomputed optimizer step with the recorded one.
 *
 * in   metrics, selected members and the new weights' digest, recorded and recomputed
 * out  how far they differ, and whether they agree
 */

import type { RecipeConfig } from '../../config'
import { selectGroup } from '../../kernels'
import type { GroupSelected, Metrics } from '../../messages/facts'
import { groupOf, type TrajectoryId } from '../../messages/ids'
import { rewardedMembers, selectionOptions } from '../trajectories/groups'
import type { Trajectory } from '../trajectories/trajectory'
import type { RecordedStep } from './learnerLog'

export interface LearnedStep {
  readonly step: number
  readonly checkpoint: string
  readonly trajectories: number
  readonly recorded: Metrics
  readonly recomputed: Metrics
  /**
   * Difference of each metric in `compared` that the recorded and the recomputed step both have, divided by the larger
   * of the two absolute values.
   */
  readonly differences: Readonly<Record<string, number>>
  /** Group members whose selection or advantage under today's code differs from the record. */
  readonly members: readonly string[]
  /** True when the new weights have the recorded digest; null when the record has no digest. */
  readonly sameWeights: boolean | null
  /**
   * True when the recorded and the recomputed step have a loss, `members` is empty, and every decisive metric that both
   * steps have is within the tolerance (for the loss, the relative or the absolute one).
   */
  readonly agrees: boolean
}

/** Metrics that are compared: those of a step's result. Other metrics of a step, such as measured times, are not. */
const compared = [
  ...['loss', 'gradNorm', 'clipFraction', 'klEngine', 'tisMean', 'entropy', 'trainedTokens', 'sequences', 'updates'],
  ...['maskedShare', 'maskedSequences'],
]
/** Metrics whose difference must be within the tolerance for a recomputed step to agree with the recorded one. */
export const decisive: ReadonlySet<string> = new Set(['loss', 'gradNorm', 'trainedTokens', 'sequences'])

/** Returns the group members that today's code selects otherwise than recorded, or with another advantage. */
export function reselected(
  byGroup: ReadonlyMap<string, readonly Trajectory[]>,
  { started }: RecordedStep,
  config: RecipeConfig,
): readonly string[] {
  const wrong: string[] = []
  for (const group of new Set(started.trajectories.map(groupOf))) {
    const members = byGroup.get(group) ?? []
    const decision = members[0]?.decision as GroupSelected | null | undefined
    const responseTokens = members[0]?.request.limits.responseTokens ?? 0
    const selection = selectGroup(rewardedMembers(members), selectionOptions(config, group, responseTokens))
    const today = new Map(selection.kind === 'rejected' ? [] : selection.kept.map(k => [k.member, k.advantage]))
    const then = new Map((decision?.kept ?? []).map(k => [k.member, k.advantage]))
    for (const member of new Set([...today.keys(), ...then.keys()])) {
      const inBatch = started.trajectories.includes(`${group}/${member}` as TrajectoryId)
      if (today.get(member) !== then.get(member) || inBatch !== then.has(member)) wrong.push(`${group}/${member}`)
    }
  }
  return wrong
}

export interface Tolerance {
  /** Upper bound on the relative difference of a decisive metric. */
  readonly relative: number
  /** Upper bound on a loss's absolute difference: within it a loss agrees, as terms of size 1 may cancel to about 0. */
  readonly loss: number
}

export function compare(
  { started, metrics, digest }: RecordedStep,
  checkpoint: string,
  recomputed: Metrics,
  newDigest: string,
  members: readonly string[],
  within: Tolerance,
): LearnedStep {
  const recorded = metrics ?? {}
  const differences: Record<string, number> = {}
  for (const name of compared) {
    const then = recorded[name]
    const now = recomputed[name]
    if (then === undefined || now === undefined) continue
    differences[name] = then === now ? 0 : Math.abs(now - then) / Math.max(Math.abs(then), Math.abs(now), 1e-12)
  }
  const isNear = (name: string) =>
    differences[name]! <= within.relative ||
    (name === 'loss' && Math.abs(recomputed.loss! - recorded.loss!) <= within.loss)
  const agrees =
    members.length === 0 &&
    Object.keys(differences).every(name => !decisive.has(name) || isNear(name)) &&
    differences.loss !== undefined
  const pick = (all: Metrics) => Object.fromEntries(Object.entries(all).filter(([name]) => compared.includes(name)))
  return {
    step: started.step,
    checkpoint,
    trajectories: started.trajectories.length,
    recorded: pick(recorded),
    recomputed: pick(recomputed),
    differences,
    members,
    sameWeights: digest === null || digest === '' ? null : digest === newDigest,
    agrees,
  }
}
