/**
 * Reads groups from a run's log as the grouper (the code that selects the members to train on) saw them.
 *
 * in   trajectories with their accepted facts
 * out  members with rewards and counts, and the options that they were selected with
 */

import { type RecipeConfig, selectionOf } from '../../config'
import { type GroupMember, overlongWithin, type SelectionOptions } from '../../kernels'
import type { GroupId } from '../../messages/ids'
import { deriveSeed } from '../../runtime/effects'
import type { Trajectory } from './trajectory'

/**
 * Returns the members that have a reward and did not fail; for a closed group, only those that `group.closed` lists.
 */
export function rewardedMembers(members: readonly Trajectory[]): readonly GroupMember[] {
  const closed = members.find(m => m.closed !== null)?.closed
  return members.flatMap(({ request: { member }, finished, reward }) => {
    if (finished === null || reward === null || finished.outcome === 'failed') return []
    if (closed != null && !closed.rewarded.includes(member)) return []
    const { toolCalls, toolErrors, answerTags, turns, responseTokens = finished.sampledTokens } = finished
    return [{ member, reward: reward.reward, toolCalls, toolErrors, answerTags, turns, responseTokens }]
  })
}

/** Returns the selection's options for a group whose responses may have up to `responseTokens` tokens. */
export const selectionOptions = (config: RecipeConfig, group: GroupId, responseTokens: number): SelectionOptions => ({
  ...overlongWithin(selectionOf(config), responseTokens),
  seed: deriveSeed(config.seed, 'select', group),
})
