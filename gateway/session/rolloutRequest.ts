/**
 * Makes the `rollout.requested` of a session that a client opened through the gateway: each session is a rollout.
 *
 * in   the session's place in a group, the task, the gateway's limits and sampling        out  `rollout.requested`
 * Invariant: the fact has no prompt, since the agent makes its own.
 */
import type { RolloutRequested } from '../../messages/facts'
import { policyVersion, taskId, trajectoryId } from '../../messages/ids'
import { deriveSeed } from '../../runtime/effects'
import type { OpenRequest, SessionsOptions } from './sessionOptions'

export function rolloutRequest(
  place: Pick<RolloutRequested, 'group' | 'member' | 'groupSize' | 'order'>,
  { task, policy }: Required<Pick<OpenRequest, 'task' | 'policy'>>,
  { fx, seed, limits, sampling, deadlineMs }: SessionsOptions,
): RolloutRequested {
  const { group, member } = place
  return {
    ...{ type: 'rollout.requested', at: fx.now(), trajectory: trajectoryId(group, member), ...place },
    ...{ purpose: policy, step: 0, tokens: new Int32Array(), tools: [], limits, sampling },
    task: {
      id: taskId(task.id ?? group),
      messages: [],
      truth: task.truth ?? '',
      reward: task.reward ?? '',
      ...(task.metadata ? { metadata: task.metadata } : {}),
    },
    ...{ seed: deriveSeed(seed, group, member), minVersion: policyVersion(0), deadlineMs },
  }
}
