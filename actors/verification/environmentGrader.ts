/**
 * Reward `verifier`: runs the verifier of a Harbor task, which judges the files that the rollout left.
 *
 * in   the task, the calls of the rollout with their snapshots        out  the reward that the verifier wrote
 * Invariant: the verifier finds the files in a new environment, in which no process of the agent runs. If it breaks,
 * writes no reward or misses its deadline, the rollout gets no reward, which is not a reward of 0.
 */
import type { RolloutEnvironments } from '../../environments'
import { TroupeError } from '../../runtime/errors'
import { excerpt } from '../../runtime/secrets/knownSecrets'
import type { Grader } from './verifierPort'

/** Number of characters from the end of the verifier's output that the reward's explanation (`why`) has. */
const shownChars = 500

export function environmentGrader(
  environments: () => Promise<RolloutEnvironments>,
  allowed: Readonly<Record<string, string | undefined>>,
): Grader {
  return async ({ task, environment: at }, signal) => {
    if (at === undefined)
      return { reward: null, how: 'no-environment', why: `task ${task.id} has no environment to verify` }
    // Loads the environments module on the first use, because most runs have no environments.
    const { endedSteps, goOn, isTooLow, judgeStep, taskRewards } =
      require('../../environments') as typeof import('../../environments')
    const ended = endedSteps(at.calls)
    const { fault } = ended.at(-1) ?? {}
    if (fault !== undefined) return { reward: null, ...fault }
    const { environment, prepared, from } = await (await environments()).start(at, signal)
    try {
      const { task: harbor } = prepared
      const results = ended.map(({ name, rewards }) => ({ name, rewards }))
      let log = ''
      // The steps that the rollout did not end itself: the one that it was in, and those after it, in which nothing was
      // done.
      const left = ended.at(-1)?.over === true ? [] : harbor.steps.slice(ended.length)
      for (const step of left) {
        const verified = await judgeStep(prepared, step, environment, allowed, signal)
        results.push({ name: step.name, rewards: verified.rewards })
        log = verified.log
        const next = left[left.indexOf(step) + 1]
        if (next === undefined || isTooLow(harbor, step, verified.rewards)) break
        await goOn(harbor, next, environment)
      }
      const rewards = taskRewards(harbor, results)
      const { reward } = rewards
      if (reward === undefined)
        return {
          reward: null,
          how: 'task.no_reward',
          why: `the verifier wrote no reward with the name reward; it wrote: ${Object.keys(rewards).join(', ')}`,
        }
      const others = Object.entries(rewards).filter(([name]) => name !== 'reward')
      const said = [
        ...others.map(([name, value]) => `${name} ${value}`),
        ...(harbor.steps.length > 1
          ? results.map(one => `step ${one.name}: ${one.rewards.reward ?? 'no reward'}`)
          : []),
        ...(from === 'other-files'
          ? ['the files were restored by running the recorded calls again, and differ from the recorded files']
          : []),
        log.trim().slice(-shownChars),
      ].filter(text => text !== '')
      return { reward, answer: '', how: 'verifier', ...(said.length === 0 ? {} : { why: said.join('; ') }) }
    } catch (thrown) {
      signal.throwIfAborted()
      if (!(thrown instanceof TroupeError) || thrown.retriable) throw thrown
      return { reward: null, how: thrown.code, why: excerpt(thrown.message, shownChars) }
    } finally {
      await environment.stop()
    }
  }
}
