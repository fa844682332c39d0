/**
 * For those who have rollouts and rewards of their own and want RoC over the log: what the grouper needs to be told.
 *
 * in   where a finished rollout stands in its group, its reward, its counts       out  the three facts that say so
 * Invariant: what a grouper does not read (prompt, limits, sampling) is empty, so these facts lead no coordinator: they
 * are for a grouper that is hosted alone. Without a log, `selectGroup` of the kernels decides the same.
 */
import type { Fact } from '../../messages/facts'
import { type Epoch, epoch, groupId, policyVersion, taskId, trajectoryId } from '../../messages/ids'
import { type Effects, systemEffects } from '../../runtime/effects'

export interface RewardedRollout {
  readonly group: string
  /** 0-based, below `groupSize`. */
  readonly member: number
  /** 2G: the group is decided once so many are there. */
  readonly groupSize: number
  /** Above 0 is a positive; null: it failed for a reason that is not the model's, and is no member. */
  readonly reward: number | null
  readonly toolCalls: number
  /** Calls that ended with anything but `ok`. */
  readonly toolErrors: number
  /** Answer elements in what the model wrote (`countAnswerTags`). */
  readonly answerTags: number
  readonly turns: number
  /** Grows from rollout to rollout: one that is told again under its order changes nothing. */
  readonly order: number
  /** The optimizer step that it is meant for. Default 0. */
  readonly step?: number
  /** The group is decided without the members that are missing this long after its first, ms. Default an hour. */
  readonly deadlineMs?: number
}

export interface RewardedOptions {
  readonly fx?: Pick<Effects, 'now'>
  /** Of a grouper that is hosted with `owner`: the offset of its `partition.claimed`. Without an owner there is none. */
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
