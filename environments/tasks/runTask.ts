/**
 * Runs a task from its start to its reward, with a program as the agent: the oracle's solution, or nothing at all.
 *
 * in   a Task, a driver        out  the rewards of each step, and of the task
 * Invariant: an environment is stopped whatever happens. A step whose reward is below `min_reward` ends the task.
 */
import { join } from 'node:path'
import type { Environment, EnvironmentDriver, EnvironmentSpec, ExecResult } from '../drivers/driver'
import { environmentError } from '../drivers/errors'
import { collectArtifacts } from './artifacts'
import { waitUntilHealthy } from './healthcheck'
import type { Rewards } from './reward'
import { goOn, isTooLow, setUpStep, taskRewards } from './steps'
import type { ImageSource, Task, TaskStep } from './task'
import type { EnvironmentToml } from './taskToml'
import { type AllowedVariables, resolveVariables } from './variables'
import { mustRun, prepareLogs, verifyStep } from './verify'

export type Agent = 'oracle' | 'empty'

export interface RunTaskOptions {
  readonly driver: EnvironmentDriver
  readonly agent: Agent
  /** Variables of this process that the task may read. */
  readonly allowed?: AllowedVariables
  /** Returns the name of the image of an image source, which it builds if needed; undefined if there is none to use. */
  readonly imageOf: (source: ImageSource) => Promise<string | undefined>
  /** Directory that gets the artifacts of the task; those of a step in a directory of its name. */
  readonly artifacts?: string
  readonly signal?: AbortSignal
}

export interface StepResult {
  readonly name: string
  readonly rewards: Rewards
  readonly agent: ExecResult | undefined
  readonly log: string
}

export interface TaskResult {
  readonly rewards: Rewards
  readonly steps: readonly StepResult[]
}

/** Limits of a task that names none; the agent's deadline is Harbor's default for the oracle. */
const usual = { memoryMb: 2048, processes: 512, agentSeconds: 600 } as const

export async function runTask(task: Task, options: RunTaskOptions): Promise<TaskResult> {
  const { driver, imageOf, allowed = {}, signal } = options
  const open = async (image: ImageSource, environment: EnvironmentToml) =>
    driver.start(environmentSpec(environment, await imageOf(image), allowed), signal)
  const environment = await open(task.image, task.config.environment)
  const steps: StepResult[] = []
  try {
    await prepareLogs(environment)
    await waitUntilHealthy(environment, task.config.environment.healthcheck)
    for (const [at, step] of task.steps.entries()) {
      signal?.throwIfAborted()
      await (at === 0 ? setUpStep : goOn)(task, step, environment)
      const agent = options.agent === 'oracle' ? await solve(step, environment, task, allowed, signal) : undefined
      const separate = () => open(step.verifierImage, step.verifierEnvironment)
      const { rewards, log } = await verifyStep(task, step, environment, separate, allowed)
      steps.push({ name: step.name, rewards, agent, log })
      if (options.artifacts !== undefined)
        await collectArtifacts(task, step, environment, join(options.artifacts, step.name))
      if (isTooLow(task, step, rewards)) break
    }
  } finally {
    await environment.stop()
  }
  return { rewards: taskRewards(task, steps), steps }
}

export function environmentSpec(
  environment: EnvironmentToml,
  image: string | undefined,
  allowed: AllowedVariables,
): EnvironmentSpec {
  const {
    cpus,
    memory_mb = usual.memoryMb,
    storage_mb,
    limitsStorage,
    workdir,
    network_mode,
    allowed_hosts,
    saysNetwork,
  } = environment
  return {
    ...(image === undefined ? {} : { image }),
    ...(workdir === undefined ? {} : { workdir }),
    network: saysNetwork ? network_mode : 'no-network',
    ...(allowed_hosts === undefined ? {} : { allowedHosts: allowed_hosts }),
    limits: {
      ...{ memoryMb: memory_mb, processes: usual.processes },
      ...(cpus === undefined ? {} : { cpus }),
      ...(storage_mb === undefined || !limitsStorage ? {} : { storageMb: storage_mb }),
    },
    env: resolveVariables(environment.env, allowed),
  }
}

async function solve(
  step: TaskStep,
  environment: Environment,
  task: Task,
  allowed: AllowedVariables,
  signal: AbortSignal | undefined,
): Promise<ExecResult> {
  if (step.solution === undefined)
    throw environmentError(
      'environment.refused',
      `task ${task.name}${step.name && ` step ${step.name}`} has no solution/solve.sh`,
      {
        hint: 'add it, or run only the verifier: --agent empty',
      },
    )
  const { user, timeout_sec = usual.agentSeconds } = step.agent
  await environment.upload(step.solution, '/solution')
  await mustRun(environment, { command: 'chmod +x /solution/solve.sh', user: 'root', cwd: '/', timeoutMs: 60_000 })
  const env = { DEBIAN_FRONTEND: 'noninteractive', ...resolveVariables(task.config.solution.env, allowed) }
  const request = {
    command: '/solution/solve.sh',
    env,
    timeoutMs: timeout_sec * 1000,
    ...(user === undefined ? {} : { user }),
  }
  return environment.exec(request, signal)
}
