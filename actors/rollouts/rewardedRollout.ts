/**
 * Makes the facts from which a grouper selects rollouts (it keeps G of a task's 2G), for a user's program that makes
 * its own rollouts and rewards.
 *
 * in   a finished rollout's index in its group, its reward, its counts
 * out  rollout.requested, rollout.finished and, unless the rollout failed, reward.assigned
 * Invariant: the prompt is empty, and the number of sampled tokens and all limits except `turns` are 0. So no
 * coordinator can drive these rollouts (host the grouper without one), and no length penalty applies. `selectGroup` of
 * the kernels makes the same selection without a log.
 */
import type { Fact } from '../../messages/facts'
import { type Epoch, epoch, groupId, policyVersion, taskId, trajectoryId } from '../../messages/ids'
import { type Effects, systemEffects } from '../../runtime/effects'

export interface RewardedRollout {
  readonly group: string
  /** Index of the rollout in its group, 0-based, below `groupSize`. */
  readonly member: number
  /**
   * Number of rollouts in the group (2G). The group is decided once the facts of all of them are in the log, or at the
   * deadline.
   */
  readonly groupSize: number
  /**
   * Reward of the rollout; above the grouper's `positiveAbove` it is a positive. null: the rollout failed for a reason
   * that is not the model's, and is left out of the selection.
   */
  readonly reward: number | null
  readonly toolCalls: number
  /** Number of tool calls that ended with any status except `ok`. */
  readonly toolErrors: number
  /** Number of pairs of `<answer>` tags in the model's text (see `countAnswerTags`). */
  readonly answerTags: number
  readonly turns: number
  /**
   * Start order of the rollout; it must grow from rollout to rollout. Repeating a rollout under the same order changes
   * nothing.
   */
  readonly order: number
  /** Optimizer step that the rollout is meant for. Default 0. */
  readonly step?: number
  /**
   * Time in ms, from the first facts of the group, after which the group is decided without its missing members; taken
   * from the group's first rollout. Default: one hour.
   */
  readonly deadlineMs?: number
}

export interface RewardedOptions {
  readonly fx?: Pick<Effects, 'now'>
  /**
   * Epoch of a grouper that is hosted with `owner`: the offset of its `partition.claimed`. Omit it without an owner.
   */
  readonly epoch?: Epoch
}

export function rewardedRollout(rollout: RewardedRollout, options: RewardedOptions = {}): readonly Fact[] {
  const { member, groupSize, order, reward, toolCalls, toolErrors, answerTags, turns, step = 0 } = rollout
  const group = groupId(rollout.group)
  const trajectory = trajectoryId(group, member)
  const at = (options.fx ?? systemEffects).now()
  const failed = reward === null
  const facts: Fact[] = [
    {
      type: 'rollout.requested',
      at,
      trajectory,
      group,
      member,
      groupSize,
      purpose: 'train',
      step,
      order,
      task: { id: taskId(group), messages: [], truth: '', reward: '' },
      tokens: new Int32Array(),
      tools: [],
      limits: { contextTokens: 0, responseTokens: 0, turns, callsPerTurn: 0, toolTimeoutMs: 0, toolResponseChars: 0 },
      sampling: { temperature: 1, topP: 1, topK: 0, minP: 0, stopTokens: [] },
      seed: 0,
      minVersion: policyVersion(0),
      deadlineMs: rollout.deadlineMs ?? 3_600_000,
    },
    {
      type: 'rollout.finished',
      at,
      trajectory,
      epoch: options.epoch ?? epoch(-1),
      outcome: failed ? 'failed' : 'answered',
      reason: '',
      turns,
      sampledTokens: 0,
      toolCalls,
      toolErrors,
      answerTags,
    },
  ]
  if (!failed) {
    facts.push({ type: 'reward.assigned', at, trajectory, attempt: 0, reward, answer: '', how: 'given' })
  }
  return facts
}
