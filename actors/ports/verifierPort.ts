/**
 * The graders' side of the verifier.
 *
 * in   answer.verify        out  reward.assigned
 * Invariant: the grader decides, within its own deadline, and says by which rule. A grader that could not decide costs
 * the rollout an attempt, not its reward.
 */
import type { VerifyAnswer } from '../../messages/commands'
import type { Effects } from '../../runtime/effects'
import type { Port } from '../../runtime/host'

export interface Grade {
  readonly reward: number
  /** What was taken as the answer; empty when there was none. */
  readonly answer: string
  /** Which rule decided. */
  readonly how: string
}

/** Judges a response. Rejects when it could not decide, which costs the rollout an attempt, not its reward. */
export type Grader = (ask: { readonly response: string; readonly truth: string }, signal: AbortSignal) => Promise<Grade>

export const verifierKey = (ask: VerifyAnswer): string => `${ask.trajectory}#${ask.attempt}`

/** Answers the behaviour's requests with the graders given by the name of the reward. */
export function verifierPort(graders: ReadonlyMap<string, Grader>, fx: Effects): Port<VerifyAnswer> {
  return async (ask, signal) => {
    const grader = graders.get(ask.reward)
    if (grader === undefined) throw new RangeError(`no grader is named '${ask.reward}'`)
    const { reward, answer, how } = await grader({ response: ask.response, truth: ask.truth }, signal)
    const { trajectory, attempt } = ask
    return {
      facts: [{ type: 'reward.assigned', at: fx.now(), trajectory, attempt, reward, answer, how }],
      commands: [],
    }
  }
}
