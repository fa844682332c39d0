/**
 * Makes the fact of a reward that a client gives a session.
 *
 * in   the session, the reward, the state of its group        out  `reward.assigned`; undefined for a repetition
 * Invariant: a session takes one reward, and only while it can count: `group.closed` lists the rewarded sessions of the
 * group once, when the last of them has ended.
 */
import type { RewardAssigned } from '../../messages/facts'
import { GatewayError, invalid } from '../gatewayError'
import type { SessionState } from './session'

interface Given {
  readonly at: number
  readonly value: number
  readonly how: string
  /** Empty if the client gave no details. */
  readonly why: string
  /** False inside a run whose rewards do not come from its agents. */
  readonly isTaken: boolean
  /** True once `group.closed` of the session's group is written, or is being written. */
  readonly isClosed: boolean
}

/** @throws GatewayError `invalid`, `no_own_reward`, `rewarded` for a second reward, `group_closed` for a late one */
export function rewardFact(
  { id, request: { group }, reward }: SessionState,
  { at, value, how, why, isTaken, isClosed }: Given,
): RewardAssigned | undefined {
  if (!Number.isFinite(value)) throw invalid(`the reward is ${value}, expected a finite number`, 'value')
  if (!isTaken) {
    const message = "this run's rewards do not come from its agents: set agent.reward to 'agent' in the recipe"
    throw new GatewayError({ kind: 'forbidden', code: 'no_own_reward', message })
  }
  if (reward !== null) {
    if (reward.reward === value && reward.how === how) return undefined
    const message = `session ${id} has the reward ${reward.reward} (key '${reward.how}') already`
    throw new GatewayError({ kind: 'conflict', code: 'rewarded', message })
  }
  if (isClosed) {
    const message = `group ${group} is closed, since all of its sessions have ended, so a reward of session ${id} no longer counts: give each reward before the last end of its group`
    throw new GatewayError({ kind: 'conflict', code: 'group_closed', message })
  }
  const given = why === '' ? {} : { why }
  return { type: 'reward.assigned', at, trajectory: id, attempt: 0, reward: value, answer: '', how, ...given }
}
