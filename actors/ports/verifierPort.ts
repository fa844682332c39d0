/**
 * The graders' side of the verifier.
 *
 * in   answer.verify        out  reward.assigned
 * Invariant: the grader decides, within its own deadline, and says by which rule. A grader that cannot decide, however
 * often it is asked, leaves the rollout without a reward, which is no zero.
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

const tries = 3

export const verifierKey = (ask: VerifyAnswer): string => `${ask.trajectory}#${ask.attempt}`

/** Answers the behaviour's requests with the graders given by the name of the reward. */
export function verifierPort(graders: ReadonlyMap<string, Grader>, fx: Effects): Port<VerifyAnswer> {
  return async (ask, signal) => {
    const grader = graders.get(ask.reward)
    if (grader === undefined) throw new RangeError(`no grader is named '${ask.reward}'`)
    const { trajectory, attempt, response, truth } = ask
    const grade = await persistently(() => grader({ response, truth }, signal), signal)
    if (grade === undefined) return undefined
    const { reward, answer, how } = grade
    return {
      facts: [{ type: 'reward.assigned', at: fx.now(), trajectory, attempt, reward, answer, how }],
      commands: [],
    }
  }
}

/** Undefined when no try came to a verdict: the group is closed at its deadline without this member. */
async function persistently(judge: () => Promise<Grade>, signal: AbortSignal): Promise<Grade | undefined> {
  for (let attempt = 0; attempt < tries && !signal.aborted; attempt++) {
    const grade = await judge().catch(() => undefined)
    if (grade !== undefined) return grade
  }
  return undefined
}
