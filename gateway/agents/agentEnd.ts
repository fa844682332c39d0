/**
 * Decides the outcome of a rollout once its agent's program has ended, and finds the rollout's reward.
 *
 * in   how the program ended, the outcome that the agent reported, the limit for which a call was refused, the recipe's
 *      source of rewards and its program `agent.check`
 * out  outcome and reason of `rollout.finished`; the facts of the reward
 * The first that applies decides: the program was killed at its deadline (failed); a call was refused because the
 * rollout's turns or tokens were used up (truncated); the agent reported another outcome than `done`, or its program
 * ended by a signal or with an exit code other than 0 (failed); else the rollout is answered. A failed rollout gets no
 * reward, so it is no negative example.
 */
import type { AgentConfig } from '../../config/sections/agent'
import type { Fact, RolloutFinished } from '../../messages/facts'
import { excerpt } from '../../runtime/secrets/knownSecrets'
import type { SessionState } from '../session/session'
import { type ProgramEnding, type ProgramOptions, runProgram, withFiles } from './agentProgram'

type Ending = Pick<RolloutFinished, 'outcome' | 'reason'>

/** Upper bound on the characters of a reason; the whole output is in the agent's log. */
const mostReason = 300

export function endingOf({ told, exhausted }: SessionState, ended: ProgramEnding): Ending {
  const said = ended.lastError === '' ? ended.lastLine : ended.lastError
  const because = (text: string): Ending => ({
    outcome: 'failed',
    reason: excerpt(`agent: ${said === '' ? text : `${text}: ${said}`}`, mostReason),
  })
  if (ended.how === 'deadline') return because('its deadline passed')
  if (exhausted !== null) return { outcome: 'truncated', reason: exhausted }
  if (told !== null && told.outcome !== 'done') return because(`it reported ${told.outcome}, ${told.reason}`)
  if (ended.how === 'signal') return because(`killed by ${ended.signal}`)
  if (ended.code !== 0) return because(`exit ${ended.code}`)
  return { outcome: 'answered', reason: told === null ? 'stop' : told.reason }
}

/**
 * Returns the fact of a reward that no grader gives, to be appended after `rollout.finished`. With `agent.check`, it
 * runs that program and returns its reward, or `reward.failed` if it gave none. Where the agent has to give its own
 * reward, it returns no fact if the agent did, else `reward.failed`.
 */
export async function ownReward(
  session: SessionState,
  agent: AgentConfig,
  program: Pick<ProgramOptions, 'directory' | 'env' | 'fx'>,
  signal: AbortSignal,
): Promise<readonly Fact[]> {
  const common = { at: program.fx.now(), trajectory: session.id, attempt: 0 }
  if (agent.reward === 'agent') {
    if (session.reward !== null) return []
    const why = 'the agent ended without giving its session a reward (POST …/reward)'
    return [{ type: 'reward.failed', ...common, how: 'none-given', why }]
  }
  const { deadlineMs } = agent
  const env = { ...program.env, TROUPE_TRUTH: session.request.task.truth }
  const command = withFiles(agent.check!)
  const ended = await runProgram({ ...program, env, command, deadlineMs, logBytes: 0 }, signal)
  const reward = ended.lastLine === '' ? Number.NaN : Number(ended.lastLine)
  if (ended.how === 'exit' && ended.code === 0 && Number.isFinite(reward))
    return [{ type: 'reward.assigned', ...common, reward, answer: '', how: 'check' }]
  const why =
    ended.how === 'exit' && ended.code === 0
      ? `agent.check printed '${ended.lastLine}', expected a number`
      : `agent.check ended (${ended.how} ${ended.code ?? ended.signal ?? ''}): ${ended.lastError || ended.lastLine}`
  return [{ type: 'reward.failed', ...common, how: 'check-failed', why: excerpt(why, mostReason) }]
}
