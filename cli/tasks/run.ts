/**
 * `troupe tasks run DIR…`: starts each task, runs its oracle solution (or nothing), then its verifier, and prints the
 * reward.
 *
 * in   task directories        out  a line a task; with --json a JSON line
 * Invariant: exit code 0 if every task ran and its reward is what the agent should get: 1 for the oracle, less for an
 * empty solution. Nothing is left of a task's environment, also after a first signal; a second signal ends the process
 * at once.
 */
import { basename, join } from 'node:path'
import type { Command } from 'commander'
import {
  type Agent,
  type DockerDriver,
  dockerDriver,
  type ImageSource,
  imageOf,
  type KeptDriver,
  localDriver,
  needsOf,
  ociDriver,
  runTask,
  type TaskResult,
  unenforcedLimits,
} from '../../environments'
import { systemEffects } from '../../runtime/effects'
import { asError, TroupeError } from '../../runtime/errors'
import { passedOn } from '../../runtime/secrets/credentials'
import { redactSecrets } from '../../runtime/secrets/knownSecrets'
import { stopSignals } from '../io/signals'
import { escapeForTerminal } from '../io/terminal'
import { repeatable } from '../options/repeatable'
import { driverFor, taskFor, tasksIn } from './check'

interface Options {
  readonly driver?: string
  readonly agent: string
  readonly env: readonly string[]
  readonly store?: string
  readonly artifacts?: string
  /** False if --no-network is given. */
  readonly network: boolean
  /** False if --no-storage-limit is given. */
  readonly storageLimit: boolean
  readonly json?: true
}

const agents = ['oracle', 'empty']
/** Minimum reward that counts as solved. */
const solved = 1

export function registerRun(tasks: Command): void {
  tasks
    .command('run')
    .description(
      'run tasks with their oracle solution and their verifier; exit code 1 if a task fails or its reward is not 1 (with --agent empty: not below 1)',
    )
    .argument('<directories...>', 'task directories, or directories that contain task directories')
    .option('--driver <name>', 'local, oci or docker; default: the one that a run chooses, local or oci')
    .option(
      '--agent <name>',
      `${agents.join(', ')}: runs before the verifier; oracle is the task's own solution, empty does nothing`,
      'oracle',
    )
    .option('--env <name>', 'variable of this process that tasks may read (repeatable)', repeatable, [])
    .option('--store <dir>', 'directory of images and environments; default: <TROUPE_HOME>/environments')
    .option('--no-network', 'run the tasks without a network, whatever they ask for')
    .option('--no-storage-limit', 'do not enforce the limits on disk space that the tasks ask for')
    .option('--artifacts <dir>', "directory that gets each task's artifacts, below the name of its directory")
    .option('--json', 'a JSON line for each task')
    .action(async (directories: readonly string[], options: Options) => {
      const code = await runAll(directories.flatMap(tasksIn), options)
      if (code !== 0) process.exitCode = code
    })
}

async function runAll(directories: readonly string[], options: Options): Promise<number> {
  if (!agents.includes(options.agent))
    throw new TroupeError('tasks.no_agent', {
      boundary: 'cli',
      retriable: false,
      message: `--agent: unknown agent '${options.agent}'; known: ${agents.join(', ')}`,
    })
  const signals = stopSignals()
  const abort = new AbortController()
  void signals.stopped.then(() => abort.abort())
  const drivers = new Map<string, KeptDriver | DockerDriver>()
  let ran = 0
  let right = 0
  try {
    for (const directory of directories) {
      if (abort.signal.aborted) break
      if (await runOne(directory, options, drivers, abort.signal)) right++
      ran++
    }
  } finally {
    for (const driver of drivers.values()) await driver.close()
    signals.release()
  }
  if (!options.json) process.stdout.write(`${right} of ${directories.length} tasks ended as expected\n`)
  return signals.exitCode() || (right < ran ? 1 : 0)
}

async function runOne(
  directory: string,
  options: Options,
  drivers: Map<string, KeptDriver | DockerDriver>,
  signal: AbortSignal,
): Promise<boolean> {
  const began = performance.now()
  const agent = options.agent as Agent
  let name = directory
  try {
    const task = taskFor(directory, options)
    name = task.name
    for (const limit of unenforcedLimits(task))
      process.stderr.write(`${escapeForTerminal(`note    ${name}: ${limit}`)}\n`)
    const driver = driverOf(driverFor(task, options.driver, options.store), options, drivers)
    await driver.sweep()
    const refused = needsOf(task, await driver.capabilities()).filter(need => need.refused !== undefined)
    if (refused.length > 0) throw new Error(refused.map(({ what, refused: why }) => `${what}: ${why}`).join('; '))
    const allowed = passedOn(options.env)
    const built = (source: ImageSource) => imageOf(driver, task, source, signal)
    const result = await runTask(task, {
      ...{ driver, agent, allowed, imageOf: built, signal },
      ...(options.artifacts === undefined ? {} : { artifacts: join(options.artifacts, basename(task.directory)) }),
    })
    return say(name, agent, result, performance.now() - began, options)
  } catch (thrown) {
    if (thrown instanceof TroupeError && thrown.boundary === 'cli') throw thrown
    const error = asError(thrown)
    const code = thrown instanceof TroupeError ? thrown.code : undefined
    const line = options.json
      ? JSON.stringify({ name, agent, ok: false, code, error: error.message })
      : escapeForTerminal(`FAILED  ${name}: ${error.message}`)
    process.stdout.write(`${line}\n`)
    return false
  }
}

function driverOf(
  name: string,
  { store }: Options,
  drivers: Map<string, KeptDriver | DockerDriver>,
): KeptDriver | DockerDriver {
  const open = name === 'local' ? localDriver : name === 'docker' ? dockerDriver : ociDriver
  const driver =
    drivers.get(name) ?? open({ run: 'tasks', fx: systemEffects, ...(store === undefined ? {} : { directory: store }) })
  drivers.set(name, driver)
  return driver
}

function say(name: string, agent: Agent, { rewards, steps }: TaskResult, wallMs: number, { json }: Options): boolean {
  const reward = rewards.reward ?? 0
  const ok = agent === 'oracle' ? reward >= solved : reward < solved
  const status = steps.map(({ agent: ended }) => ended?.status).filter(Boolean)
  if (json) {
    const told = steps.map(({ name, rewards, agent: ended, log }) => ({
      name,
      rewards,
      agent: ended?.status,
      exitCode: ended?.exitCode,
      log: redactSecrets(log),
    }))
    process.stdout.write(`${JSON.stringify({ name, agent, ok, rewards, steps: told, wallMs: Math.round(wallMs) })}\n`)
    return ok
  }
  const shown = Object.entries(rewards)
    .map(([key, value]) => `${key} ${value}`)
    .join(', ')
  const line = `${ok ? 'ok    ' : 'FAILED'}  ${name}: ${shown}  (${agent}${status.length > 0 ? ` ${status.join(', ')}` : ''}, ${(wallMs / 1000).toFixed(1)} s)`
  process.stdout.write(`${escapeForTerminal(line)}\n`)
  if (!ok) for (const { log } of steps) process.stdout.write(`${escapeForTerminal(redactSecrets(log).slice(-2000))}\n`)
  return ok
}
