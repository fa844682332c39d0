/**
 * Grades recorded responses again: by the run's rewards, another recipe's rewards, a caller's grader, or arithmetic
 * (answer and truth compared as numbers).
 *
 * in   rewarded trajectories, how to grade them        out  for each the recorded and the new rewards
 * Invariant: a response is graded by the reward that its task names, unless the options ask for a grader or for
 * arithmetic. No token is generated for a response, and the log is not changed.
 */
import { opinionOn } from '../../actors/curriculum/tally'
import type { Grader } from '../../actors/verification/verifierPort'
import type { RewardConfig } from '../../config'
import { asError } from '../../runtime/errors'
import { rejectOnAbort } from '../../runtime/rejectOnAbort'
import { configOf } from '../log/recordedConfig'
import type { RecordedRun } from '../log/recordedRun'
import { replayError } from '../replayError'
import { resolveTarget, trajectoriesOf } from '../trajectories/resolveId'
import { readTrajectories, responseOf, type Trajectory } from '../trajectories/trajectory'
import { graderDeadlineMs, gradesAtOnce, openRecordedGrader } from './recordedGrader'

export interface RescoreOptions {
  /**
   * Trajectory, group or step to grade; a group or a trajectory also by a part of its id. Default: every rewarded
   * trajectory.
   */
  readonly target?: string
  /** Number of times that each response is graded. Default 1. */
  readonly times?: number
  /** Part of the response in which the grader looks for the answer. Default: the recipe's. */
  readonly place?: RewardConfig['place']
  /** true: if the truth is an integer, only a number in digits is right. Default: the recipe's. */
  readonly literal?: boolean
  /** Grader to use in place of the run's rewards. */
  readonly grader?: Grader
  /** Name or file of the recipe whose rewards grade the responses. Default: the run's own. */
  readonly recipe?: string
  /** true: grades by plain arithmetic; trajectories that arithmetic cannot grade are left out. */
  readonly arithmetic?: boolean
  /**
   * Deadline of one grade, ms. Default: 60 s for `grader`, the recipe's reward.timeoutMs for the rewards of a recipe.
   */
  readonly timeoutMs?: number
}

export interface Rescored {
  readonly trajectory: string
  readonly recorded: number
  /** One reward for each time that the response was graded; empty when it could not be graded. */
  readonly rewards: readonly number[]
  readonly mean: number | null
  /** Sample standard deviation of `rewards` (divisor n − 1); 0 for fewer than two. */
  readonly deviation: number
  readonly answer: string
  readonly how: string
  /** true: at least one reward differs from the recorded one. */
  readonly changed: boolean
}

/**
 * Grades the selected trajectories.
 * @throws TroupeError replay.no_match, replay.ambiguous; replay.cannot_rescore when no trajectory has a reward to
 * compare with, when arithmetic can grade none, when a task names an unknown reward, or when the grader throws, returns
 * no number or exceeds its deadline; the errors of `openRecordedGrader`
 */
export async function rescoreTrajectories(
  recorded: RecordedRun,
  options: RescoreOptions = {},
): Promise<readonly Rescored[]> {
  const { target, grader: given } = options
  const wants = target === undefined ? () => true : resolveTarget(target, await trajectoriesOf(recorded))
  const rewarded = (await readTrajectories(recorded, wants)).filter(one => one.reward !== null)
  if (rewarded.length === 0)
    throw cannotRescore(
      'no selected trajectory has a recorded reward to compare with',
      'select others: `troupe replay ls` lists the trajectories with their rewards',
    )
  if (options.arithmetic) return byArithmetic(rewarded)
  const config = await configOf(recorded)
  const opened = given === undefined ? await openRecordedGrader(config, options) : undefined
  try {
    // A recipe's graders enforce the deadline themselves, so the limit here is at least 60 s longer, for the sandbox's
    // start and for grades that are made first.
    const ownMs = options.timeoutMs ?? Math.max(graderDeadlineMs, given === undefined ? config.reward.timeoutMs : 0)
    const timeoutMs = given === undefined ? graderDeadlineMs + ownMs : ownMs
    const results: Rescored[] = []
    for (let at = 0; at < rewarded.length; at += gradesAtOnce) {
      const some = rewarded.slice(at, at + gradesAtOnce)
      results.push(
        ...(await Promise.all(some.map(one => rescored(one, opened?.grade ?? given!, options.times ?? 1, timeoutMs)))),
      )
    }
    return results
  } finally {
    await opened?.close()
  }
}

function byArithmetic(rewarded: readonly Trajectory[]): readonly Rescored[] {
  const results = rewarded.flatMap(({ id, reward, request }): Rescored[] => {
    const opinion = opinionOn(reward!, request.task.truth)
    if (opinion === undefined) return []
    const { reward: recorded, answer } = reward!
    const now = opinion ? 1 : 0
    const changed = now !== recorded
    return [{ trajectory: id, recorded, rewards: [now], mean: now, deviation: 0, answer, how: 'arithmetic', changed }]
  })
  if (results.length > 0) return results
  throw cannotRescore(
    'arithmetic can judge none of the selected responses: it handles only numbers that the reward `math` judged',
    'leave out --second, or select other trajectories',
  )
}

async function rescored(one: Trajectory, grader: Grader, times: number, timeoutMs: number): Promise<Rescored> {
  const { id, request } = one
  const ask = { response: responseOf(one), truth: request.task.truth, task: request.task }
  const rewards: number[] = []
  let answer = ''
  let how = ''
  for (let k = 0; k < times; k++) {
    const grade = await graded(grader, ask, timeoutMs, id)
    if (grade?.reward === null) {
      if (rewards.length === 0) how = `${grade.how}: ${grade.why}`
      continue
    }
    if (!Number.isFinite(grade?.reward)) {
      const hint = 'the grader has to return {reward, answer, how}, with a finite reward or null'
      throw cannotRescore(`the grader returned no finite reward for ${id}`, hint)
    }
    rewards.push(grade.reward)
    answer = String(grade.answer ?? '')
    how = String(grade.how ?? '')
  }
  const { length } = rewards
  const mean = length === 0 ? null : rewards.reduce((a, b) => a + b, 0) / length
  const deviation = length < 2 ? 0 : Math.sqrt(rewards.reduce((sum, r) => sum + (r - mean!) ** 2, 0) / (length - 1))
  const recorded = one.reward!.reward
  const changed = rewards.some(r => r !== recorded)
  return { trajectory: id, recorded, rewards, mean, deviation, answer, how, changed }
}

/** Calls a grader with a deadline, since a caller's grader may hang or throw anything. */
async function graded(grader: Grader, ask: Parameters<Grader>[0], timeoutMs: number, id: string) {
  const late = new AbortController()
  const timer = setTimeout(() => late.abort(), timeoutMs)
  try {
    return await rejectOnAbort((async () => grader(ask, late.signal))(), late.signal)
  } catch (thrown) {
    const why = late.signal.aborted ? `the grader did not answer within ${timeoutMs} ms` : asError(thrown).message
    throw cannotRescore(`${id} could not be graded: ${why}`, 'correct the grader, or raise --timeout-ms')
  } finally {
    clearTimeout(timer)
  }
}

export const cannotRescore = (message: string, hint: string) => replayError('cannot_rescore', message, hint)
