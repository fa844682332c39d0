/**
 * The verifier's port to the graders: lets the named grader judge an answer, and records the reward.
 *
 * in   answer.verify        out  reward.assigned | reward.failed
 * Invariant: the grader decides within its own deadline and names the rule. If it gives no reward (which is not a
 * reward of zero), or rejects three times for one request, reward.failed says why.
 */
import { setTimeout as sleep } from 'node:timers/promises'

import { type Task, taskId } from '../../messages'
import type { VerifyAnswer } from '../../messages/commands'
import type { EnvironmentAt } from '../../messages/facts'
import type { Effects } from '../../runtime/effects'
import { asError, TroupeError } from '../../runtime/errors'
import type { Port } from '../../runtime/host/host'
import { excerpt } from '../../runtime/secrets/knownSecrets'

export interface Graded {
  readonly reward: number
  /** Answer extracted from the response; '' if the response has none. */
  readonly answer: string
  /** Name of the rule that decided the reward. */
  readonly how: string
  readonly why?: string
}

/** Result of a grader that gives no reward. Asking the grader again would not help. */
export interface Ungraded {
  readonly reward: null
  /** Kind of the grader's failure: one word, or the code or name of an error. */
  readonly how: string
  readonly why: string
}

export type Grade = Graded | Ungraded

export interface GraderAsk {
  readonly response: string
  readonly truth: string
  readonly task: Task
  /** Files that the rollout left; only for tasks with an environment. */
  readonly environment?: EnvironmentAt
}

/** Judges a response. If the call rejects, the port repeats it up to twice. */
export type Grader = (ask: GraderAsk, signal: AbortSignal) => Promise<Grade>

/**
 * Pauses in ms before the second and the third try: a sandbox may have been reopened by then, or a full queue drained.
 */
const retryPausesMs = [200, 1000]

export const verifierKey = (ask: VerifyAnswer): string => `${ask.trajectory}#${ask.attempt}`

/** Sends each request to the grader of the reward that it names; throws if no grader has that name. */
export function verifierPort(graders: ReadonlyMap<string, Grader>, fx: Effects): Port<VerifyAnswer> {
  return async (ask, signal) => {
    const grader = graders.get(ask.reward)
    if (grader === undefined) throw unknownReward(ask, [...graders.keys()])
    const { trajectory, attempt, response, truth } = ask
    const task = ask.task ?? { id: taskId(''), messages: [], truth, reward: ask.reward }
    const files = ask.environment === undefined ? {} : { environment: ask.environment }
    const grade = await withRetries(() => grader({ response, truth, task, ...files }, signal), signal)
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

/**
 * Asks a grader up to three times, until it does not reject. Returns undefined after an abort: the next owner of the
 * partition asks again.
 */
async function withRetries(judge: () => Promise<Grade>, signal: AbortSignal): Promise<Grade | undefined> {
  for (let attempt = 0; ; attempt++) {
    try {
      return await judge()
    } catch (thrown) {
      const pauseMs = retryPausesMs[attempt]
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
  why: excerpt(error.message, 500),
})

const unknownReward = ({ task, trajectory, reward }: VerifyAnswer, known: readonly string[]) =>
  new TroupeError('config.unknown_reward', {
    boundary: 'config',
    retriable: false,
    message: `task ${task?.id ?? trajectory} asks for the reward '${reward}', which does not exist`,
    hint: `known rewards: ${known.filter(one => one !== '').join(', ')}; a recipe defines others in \`rewards\``,
  })
