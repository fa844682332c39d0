/**
 * The graders' side of the verifier.
 *
 * in   answer.verify        out  reward.assigned | reward.failed
 * Invariant: the grader decides, within its own deadline, and says by which rule. One that says that it cannot decide leaves
 * the rollout without a reward, which is no zero and stands in the log; one that breaks is asked again, and after the last try
 * the log says so too.
 */
import { setTimeout as sleep } from 'node:timers/promises'

import { type Task, taskId } from '../../messages'
import type { VerifyAnswer } from '../../messages/commands'
import type { Effects } from '../../runtime/effects'
import { asError, TroupeError } from '../../runtime/errors'
import type { Port } from '../../runtime/host/host'

export interface Graded {
  readonly reward: number
  /** What was taken as the answer; empty when there was none. */
  readonly answer: string
  /** Which rule decided. */
  readonly how: string
  readonly why?: string
}

/** No reward can be had, however often it is asked. */
export interface Ungraded {
  readonly reward: null
  /** What went wrong, in a word. */
  readonly how: string
  readonly why: string
}

export type Grade = Graded | Ungraded

export interface GraderAsk {
  readonly response: string
  readonly truth: string
  readonly task: Task
}

/** Judges a response. Rejects when it could not decide, and is asked again. */
export type Grader = (ask: GraderAsk, signal: AbortSignal) => Promise<Grade>

/** Before the second try and the third: what broke (a sandbox that is opened anew, a full queue) may be back by then. */
const pausesMs = [200, 1000]

export const verifierKey = (ask: VerifyAnswer): string => `${ask.trajectory}#${ask.attempt}`

/** Answers the behaviour's requests with the graders given by the name of the reward. */
export function verifierPort(graders: ReadonlyMap<string, Grader>, fx: Effects): Port<VerifyAnswer> {
  return async (ask, signal) => {
    const grader = graders.get(ask.reward)
    if (grader === undefined) throw unknown(ask.reward, [...graders.keys()])
    const { trajectory, attempt, response, truth } = ask
    const task = ask.task ?? { id: taskId(''), messages: [], truth, reward: ask.reward }
    const grade = await persistently(() => grader({ response, truth, task }, signal), signal)
    if (grade === undefined) return undefined
    const common = { at: fx.now(), trajectory, attempt }
    if (grade.reward === null) {
      const { how, why } = grade
      return { facts: [{ type: 'reward.failed', ...common, how, why }], commands: [] }
    }
    const { reward, answer, how, why } = grade
    const said = why === undefined ? {} : { why }
    return { facts: [{ type: 'reward.assigned', ...common, reward, answer, how, ...said }], commands: [] }
  }
}

/** Undefined when it was called off: whoever takes over is asked. */
async function persistently(judge: () => Promise<Grade>, signal: AbortSignal): Promise<Grade | undefined> {
  for (let attempt = 0; ; attempt++) {
    try {
      return await judge()
    } catch (thrown) {
      const pauseMs = pausesMs[attempt]
      if (signal.aborted) return undefined
      if (pauseMs === undefined) return ungraded(asError(thrown))
      await sleep(pauseMs, undefined, { signal }).catch(() => {})
      if (signal.aborted) return undefined
    }
  }
}

const ungraded = (error: Error): Ungraded => ({
  reward: null,
  how: error instanceof TroupeError ? error.code : error.name,
  why: error.message.slice(0, 500),
})

const unknown = (name: string, known: readonly string[]) =>
  new TroupeError('config.unknown_reward', {
    boundary: 'config',
    retriable: false,
    message: `a task names the reward '${name}', which there is not`,
    hint: `rewards: ${known.filter(one => one !== '').join(', ')}; a recipe brings others as \`rewards\``,
  })
