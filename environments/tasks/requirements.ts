/**
 * Lists what a task needs from a driver, and which of these needs the driver cannot meet.
 *
 * in   a Task, the capabilities of a driver
 * out  needs, each with the reason why the driver cannot meet it, or none
 * Invariant: a task without a refused need runs as Harbor's documentation says, except that it has no network if it
 * names no network mode. Where Troupe runs a task with less isolation or fewer resources than the task asks for, it
 * says so.
 */
import { relative } from 'node:path'
import { withoutStorageLimit } from '../drivers/diskLimit'
import type { DriverCapabilities } from '../drivers/driver'
import type { ImageSource, Task } from './task'
import type { EnvironmentToml, McpServerToml } from './taskToml'

export interface Need {
  /** Field of task.toml, or file, that states the need. */
  readonly where: string
  readonly what: string
  /** Reason why the driver cannot meet the need; absent: it can. */
  readonly refused?: string
}

/** True for a server that the tool `mcp` can call: one that is a program of the environment. */
export const isOffered = ({ transport }: Pick<McpServerToml, 'transport'>): boolean => transport === 'stdio'

export function needsOf(task: Task, driver: DriverCapabilities): readonly Need[] {
  const { environment } = task.config
  const needs: Need[] = []
  const add = (where: string, what: string, refused?: string | false) =>
    needs.push({ where, what, ...(refused ? { refused } : {}) })

  add(
    `environment${task.image.kind === 'dockerfile' ? '/Dockerfile' : ''}`,
    imageText(task, task.image, driver),
    imageFault(task.image, driver),
  )
  needs.push(...environmentNeeds('environment', environment, driver))
  if (environment.healthcheck !== undefined)
    add('environment.healthcheck', `a health check: ${environment.healthcheck.command}`)
  for (const { name, transport } of environment.mcp_servers)
    add(
      'environment.mcp_servers',
      `the MCP server ${name} (${transport})`,
      !isOffered({ transport }) &&
        'only servers with the transport stdio, which run in the environment, are offered to the agent',
    )
  if (environment.skills_dir !== undefined)
    add('environment.skills_dir', `skills in ${environment.skills_dir}`, 'skills are not offered to the agent')
  if (Object.keys(environment.env).length > 0)
    add('environment.env', `variables: ${Object.keys(environment.env).join(', ')}`)
  if (task.config.steps?.length) add('steps', `${task.config.steps.length} steps`)
  for (const { name, healthcheck } of task.config.steps ?? [])
    if (healthcheck !== undefined) add(`steps.${name}.healthcheck`, `a health check: ${healthcheck.command}`)
  for (const step of task.steps) {
    const prefix = step.name === '' ? '' : `steps.${step.name}.`
    const isOther = (user: string | number | undefined) => user !== undefined && user !== 'root' && user !== 0
    const userFault = `the driver ${driver.driver} runs commands only as root of the environment`
    if (step.agent.user !== undefined)
      add(
        `${prefix}agent.user`,
        `the agent as user ${step.agent.user}`,
        isOther(step.agent.user) && !driver.users && userFault,
      )
    if (step.verifier.user !== undefined)
      add(
        `${prefix}verifier.user`,
        `the verifier as user ${step.verifier.user}`,
        isOther(step.verifier.user) && !driver.users && userFault,
      )
    for (const [phase, own, around] of [
      ['agent', step.agent, environment],
      ['verifier', step.verifier, step.isSeparate ? step.verifierEnvironment : environment],
    ] as const) {
      const [asked, given] = [networkOf(own), networkOf(around.saysNetwork ? around : { network_mode: 'no-network' })]
      if (asked !== undefined && asked !== given)
        add(
          `${prefix}${phase}.network_mode`,
          `${asked} for the ${phase}`,
          `${around === environment ? 'the whole task' : "the verifier's environment"} has one network, ${given}`,
        )
    }
    if (step.isSeparate) {
      add(
        `${prefix}verifier.environment_mode`,
        `a separate environment for the verifier, from ${imageText(task, step.verifierImage, driver)}`,
        imageFault(step.verifierImage, driver),
      )
      if (step.verifier.environment !== undefined)
        needs.push(...environmentNeeds(`${prefix}verifier.environment`, step.verifierEnvironment, driver))
    }
    const services = [...step.verifier.collect, ...task.config.artifacts].map(one =>
      'service' in one ? one.service : undefined,
    )
    for (const service of new Set(services))
      if (service !== undefined && service !== 'main')
        add(
          `${prefix}verifier.collect`,
          `the compose service ${service}`,
          `the driver ${driver.driver} starts no compose services`,
        )
  }
  return needs
}

/** Needs of one environment's network, limits and devices. @param where its table in task.toml */
function environmentNeeds(where: string, environment: EnvironmentToml, driver: DriverCapabilities): readonly Need[] {
  const needs: Need[] = []
  const add = (field: string, what: string, refused?: string | false) =>
    needs.push({ where: `${where}.${field}`, what, ...(refused ? { refused } : {}) })
  const limit = (field: 'cpus' | 'memoryMb') =>
    !driver.limits.includes(field) && `the driver ${driver.driver} cannot hold this limit here`
  add('network_mode', networkText(environment), networkFault(environment, driver))
  if (environment.os === 'windows') add('os', 'Windows', 'only Linux tasks can be run')
  if (environment.cpus !== undefined) add('cpus', `${environment.cpus} CPUs`, limit('cpus'))
  if (environment.memory_mb !== undefined) add('memory_mb', `${environment.memory_mb} MiB of memory`, limit('memoryMb'))
  if (environment.storage_mb !== undefined)
    add('storage_mb', storageText(environment), environment.limitsStorage && storageFault(driver))
  if (environment.gpus) add('gpus', `${environment.gpus} GPUs`, 'no driver passes GPUs into an environment')
  if (environment.tpu !== undefined)
    add('tpu', `a TPU ${environment.tpu.type}`, 'no driver passes TPUs into an environment')
  return needs
}

/** A network in words, equal for equal networks; undefined where none is named. */
function networkOf({
  network_mode,
  allowed_hosts = [],
}: {
  readonly network_mode?: string | undefined
  readonly allowed_hosts?: readonly string[] | undefined
}): string | undefined {
  return network_mode === 'allowlist'
    ? `allowlist (${[...new Set(allowed_hosts.map(host => host.toLowerCase()))].sort().join(', ')})`
    : network_mode
}

function imageText({ directory }: Task, image: ImageSource, { driver }: DriverCapabilities): string {
  switch (image.kind) {
    case 'image':
      return `the image ${image.name}`
    case 'dockerfile': {
      const file = relative(directory, image.file)
      return driver === 'local'
        ? `files of ${file} over this machine's programs, in place of those of FROM`
        : `an image built from ${file}`
    }
    case 'compose':
      return 'services of a compose file'
    case 'none':
      return 'no image'
  }
}

const imageFault = (image: ImageSource, driver: DriverCapabilities) =>
  !driver.images.includes(image.kind) &&
  `the driver ${driver.driver} accepts only ${driver.images.map(kind => ({ image: 'named images', dockerfile: 'Dockerfiles', compose: 'compose files', none: 'tasks without an image' })[kind]).join(' and ')}`

const networkText = ({ network_mode, saysNetwork }: Task['config']['environment']) =>
  saysNetwork ? `network: ${network_mode}` : 'network: task.toml names none; Troupe gives none'

const networkRefusal = ({ driver, networks }: DriverCapabilities) =>
  `the driver ${driver} offers only ${networks.join(', ')}; to run without a network: --no-network of troupe tasks, --set environments.network=no-network of a run`

/** A task that names no network mode gets no network: Harbor's default (public) does not count as a need. */
const networkFault = ({ network_mode, saysNetwork }: Task['config']['environment'], driver: DriverCapabilities) =>
  saysNetwork && !driver.networks.includes(network_mode) && networkRefusal(driver)

const storageText = ({ storage_mb, limitsStorage }: Task['config']['environment']) =>
  `${storage_mb} MiB of disk${limitsStorage ? '' : ', not enforced'}`

const storageFault = ({ driver, limits, whyNoStorageLimit }: DriverCapabilities) =>
  !limits.includes('storageMb') &&
  `the driver ${driver} cannot hold this limit here${whyNoStorageLimit === undefined ? '' : ` (${whyNoStorageLimit})`}; ${withoutStorageLimit}`

/** Returns the limits that the task asks for and that are not enforced, because the user says so. */
export function unenforcedLimits({ config, steps }: Task): readonly string[] {
  const separate = steps.flatMap(step => (step.isSeparate ? [step.verifierEnvironment] : []))
  const unlimited = [config.environment, ...separate].filter(one => one.storage_mb !== undefined && !one.limitsStorage)
  return [...new Set(unlimited.map(storageText))]
}

/** Returns the reasons why a driver cannot run a rollout of the task. */
export function rolloutRefusals(task: Task, driver: DriverCapabilities): readonly string[] {
  return needsOf(task, driver)
    .filter(({ refused }) => refused !== undefined)
    .map(({ what, refused }) => `${what}: ${refused}`)
}
