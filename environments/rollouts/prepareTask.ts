/**
 * Prepares a task for rollouts: builds its image, sets up one environment and takes its snapshot, from which every
 * rollout starts.
 *
 * in   a task's directory, its digest and the user's overrides, as the fact of the request records them
 * out  the specification and the snapshot that the task's environments start from
 * Invariant: a directory whose digest is not that of the rollout's request is refused, so a rollout and its verifier
 * see the same task.
 */
import { createHash } from 'node:crypto'
import { lstatSync, readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { TaskEnvironment } from '../../messages/facts'
import { buildDockerImage } from '../docker/buildImage'
import { DockerDriver } from '../docker/dockerDriver'
import type { EnvironmentDriver, EnvironmentSpec } from '../drivers/driver'
import { environmentError } from '../drivers/errors'
import type { KeptDriver } from '../drivers/keptDriver'
import { buildImage } from '../images/buildImage'
import { waitUntilHealthy } from '../tasks/healthcheck'
import { withOverrides } from '../tasks/overrides'
import { rolloutRefusals } from '../tasks/requirements'
import { environmentSpec } from '../tasks/runTask'
import { setUpStep } from '../tasks/steps'
import { type ImageSource, loadTask, type Task } from '../tasks/task'
import type { AllowedVariables } from '../tasks/variables'
import { prepareLogs } from '../tasks/verify'

/** A driver whose snapshots are in the store on this machine. */
export type RolloutDriver = KeptDriver | DockerDriver

export interface PreparedTask {
  readonly task: Task
  readonly driver: RolloutDriver
  readonly spec: EnvironmentSpec
  /** Snapshot of the environment before the first call. */
  readonly base: string
}

export interface PrepareOptions {
  readonly allowed: AllowedVariables
  readonly signal?: AbortSignal
}

/**
 * Prepares a task; resolves with its specification and its first snapshot. @throws TroupeError task.* for a task that
 * cannot be read, environment.* for an environment that cannot be made
 */
export async function prepareTask(
  asked: TaskEnvironment,
  driver: RolloutDriver,
  { allowed, signal }: PrepareOptions,
): Promise<PreparedTask> {
  const { directory, digest } = asked
  const now = directoryDigest(directory)
  if (now !== digest)
    throw environmentError('environment.refused', `the task ${directory} has changed since the rollout was requested`, {
      hint: 'restore its files, or start a new run',
    })
  const task = withOverrides(loadTask(directory), asked)
  await refuseUnmet(task, driver)
  const image = await imageOf(driver, task, task.image, signal)
  const spec = environmentSpec(task.config.environment, image, allowed)
  const environment = await driver.start(spec, signal)
  try {
    await prepareLogs(environment)
    await waitUntilHealthy(environment, task.config.environment.healthcheck)
    await setUpStep(task, task.steps[0]!, environment)
    const { digest: base } = await environment.snapshot()
    return { task, driver, spec, base }
  } finally {
    await environment.stop()
  }
}

/**
 * Refuses a task that rollouts cannot run. @throws TroupeError environment.refused if the driver cannot give what the
 * task needs
 */
async function refuseUnmet(task: Task, driver: Pick<EnvironmentDriver, 'capabilities'>): Promise<void> {
  const refused = rolloutRefusals(task, await driver.capabilities())
  if (refused.length === 0) return
  throw environmentError('environment.refused', `task ${task.name}: ${refused.join('; ')}`, {
    hint: `troupe tasks check ${task.directory}`,
  })
}

/** Returns an image source's image by name or id, built first from a Dockerfile; undefined for `compose` and `none`. */
export async function imageOf(
  driver: RolloutDriver,
  task: Task,
  source: ImageSource,
  signal?: AbortSignal,
): Promise<string | undefined> {
  if (source.kind === 'image') return source.name
  if (source.kind !== 'dockerfile') return undefined
  const timeoutMs = task.config.environment.build_timeout_sec * 1000
  const more = signal === undefined ? {} : { signal }
  const build = { file: source.file, context: dirname(source.file), timeoutMs, ...more }
  return driver instanceof DockerDriver ? buildDockerImage(driver, build) : buildImage(driver, build)
}

/** Digest of a directory's files: names, modes, contents. */
export function directoryDigest(directory: string): string {
  const hash = createHash('sha256')
  const visit = (path: string, name: string) => {
    const info = lstatSync(path)
    const content = info.isSymbolicLink() ? readlinkSync(path) : info.isFile() ? digestOf(path) : ''
    hash.update(JSON.stringify([name, info.mode & 0o7777, content]))
    if (info.isDirectory()) for (const inner of readdirSync(path).sort()) visit(join(path, inner), `${name}/${inner}`)
  }
  visit(directory, '')
  return hash.digest('hex')
}

const digestOf = (file: string) => createHash('sha256').update(readFileSync(file)).digest('hex')
