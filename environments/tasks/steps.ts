/**
 * Moves a task's environment from one step to the next, as in Harbor: one environment, whose files stay.
 *
 * in   a task, the environment after a step's verifier
 * out  the environment as the next step finds it; the task's rewards
 * Invariant: tests, verifier's output and oracle's solution are removed before the next step, and no process of an
 * earlier step still runs. An agent that is root can replace a program that the verifier runs, and that program can
 * copy the verifier's files; such a copy stays. Only a separate verifier's files are safe from such an agent.
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { Environment } from '../drivers/driver'
import { waitUntilHealthy } from './healthcheck'
import type { Rewards } from './reward'
import { ofStep, type Task, type TaskStep } from './task'
import { mustRun, prepareLogs } from './verify'

/** Puts the step's own files into the working directory, runs its setup.sh, and waits for its health check. */
export async function setUpStep(task: Task, step: TaskStep, environment: Environment): Promise<void> {
  await putFiles(task, step, environment)
  await waitUntilHealthy(environment, ofStep(task, step)?.healthcheck)
}

async function putFiles(task: Task, { name }: TaskStep, environment: Environment): Promise<void> {
  const files = join(task.directory, 'steps', name, 'workdir')
  if (name === '' || !existsSync(files)) return
  const { workdir } = environment
  // The agent may have removed the working directory.
  if (workdir !== undefined)
    await mustRun(environment, { command: ['mkdir', '-p', workdir], user: 'root', cwd: '/', timeoutMs: 60_000 })
  const { stdout } = await mustRun(environment, { command: 'pwd', timeoutMs: 60_000 })
  await environment.upload(files, stdout.toString().trim() || '/')
  const setup = join(files, 'setup.sh')
  if (existsSync(setup)) await mustRun(environment, { command: 'bash ./setup.sh', timeoutMs: 600_000 })
}

/**
 * Goes on to the step `next`: kills the processes of the step before, removes the verifier's and the oracle's files, and
 * sets `next` up.
 */
export async function goOn(task: Task, next: TaskStep, environment: Environment): Promise<void> {
  await environment.restart()
  await mustRun(environment, {
    command: 'rm -rf /tests /solution /logs/verifier',
    user: 'root',
    cwd: '/',
    timeoutMs: 60_000,
  })
  await prepareLogs(environment)
  await setUpStep(task, next, environment)
}

/** Returns true if a reward is below the step's `min_reward`, which ends the task. */
export function isTooLow(task: Task, step: TaskStep, rewards: Rewards): boolean {
  const least = ofStep(task, step)?.min_reward
  if (least === undefined) return false
  const bounds = typeof least === 'number' ? { reward: least } : least
  return Object.entries(bounds).some(([name, bound]) => (rewards[name] ?? Number.NEGATIVE_INFINITY) < bound)
}

/** Rewards of a task: means over the steps that ran (a missing reward is 0), or the last step's, as task.toml says. */
export function taskRewards(task: Task, steps: readonly { readonly rewards: Rewards }[]): Rewards {
  if (steps.length <= 1 || task.config.multi_step_reward_strategy === 'final') return steps.at(-1)?.rewards ?? {}
  const names = [...new Set(steps.flatMap(({ rewards }) => Object.keys(rewards)))]
  const mean = (name: string) => steps.reduce((sum, { rewards }) => sum + (rewards[name] ?? 0), 0) / steps.length
  return Object.fromEntries(names.map(name => [name, mean(name)]))
}
