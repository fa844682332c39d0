/**
 * Verifier: lets a grader judge the answer of each rollout.
 *
 * in   answer.verify       out  reward.assigned | reward.failed, through a request to a grader
 * Invariant: a request gets at most one of these facts. The verifier holds no state: if neither fact comes, the
 * coordinator asks again.
 */
import type { VerifyAnswer } from '../../messages/commands'
import { type Behaviour, nothing } from '../../runtime/host/behaviour'

export function verifier(): Behaviour<null, VerifyAnswer, VerifyAnswer> {
  return {
    name: 'verifier',
    initial: () => null,
    evolve: state => state,
    decide: (_state, input) => (input.type === 'answer.verify' ? { ...nothing, requests: [input] } : nothing),
    pending: () => nothing,
  }
}
