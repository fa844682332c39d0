/**
 * Tasks of a directory in Harbor's format, as tasks of a run.
 *
 * in   a task directory, or a directory of them        out  a task for every index of a split
 * Invariant: a task that cannot be read, or needs what its driver (the software that runs its environment) cannot give,
 * stops the run at its start; one error lists all such tasks. The tasks are in the order of their directories' names,
 * and a task that is evaluated on is not trained on.
 */
import { createHash } from 'node:crypto'
import { existsSync, readdirSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { type EnvironmentSettings, environmentSettings, type TaskSource } from '../../config'
import {
  type DriverHere,
  type DriverName,
  directoryDigest,
  driverHere,
  type Task as HarborTask,
  loadTask,
  mcpTool,
  rolloutRefusals,
  storeAt,
  type TaskOverrides,
  unenforcedLimits,
  usualDriver,
  withOverrides,
} from '../../environments'
import { printToolCall } from '../../kernels'
import type { ChatMessage, Task, TaskEnvironment } from '../../messages/facts'
import { taskId } from '../../messages/ids'
import { asError, TroupeError } from '../../runtime/errors'

export interface TerminalTask {
  readonly harbor: HarborTask
  readonly environment: TaskEnvironment
  readonly messages: readonly ChatMessage[]
}

/**
 * Reads the tasks of a directory. @throws TroupeError task.none if the directory holds no task; task.cannot_run, which
 * lists all tasks that cannot be read or that the run cannot run
 */
export async function terminalTasks(
  directory: string,
  system: string,
  settings: EnvironmentSettings | undefined,
): Promise<readonly TerminalTask[]> {
  const { driver, network, storage } = environmentSettings(settings)
  const overrides: TaskOverrides = {
    ...(network === 'no-network' ? { network } : {}),
    ...(storage === 'no-limit' ? { storage } : {}),
  }
  const faults: string[] = []
  const tasks: TerminalTask[] = []
  const asked = new Map<DriverName, Promise<DriverHere>>()
  for (const path of taskDirectories(resolve(directory)))
    try {
      const harbor = withOverrides(loadTask(path), overrides)
      const name = driver === 'auto' ? usualDriver(harbor, storeAt()) : driver
      const here = asked.get(name) ?? driverHere(name, storeAt())
      asked.set(name, here)
      faults.push(...(await refusals(harbor, name, await here)).map(fault => `${path}: ${fault}`))
      const environment = {
        directory: path,
        digest: directoryDigest(path),
        driver: name,
        ...stepsOf(harbor),
        ...overrides,
      }
      const instruction = `${harbor.steps[0]!.instruction.trim()}${mcpText(harbor)}`
      const said: readonly ChatMessage[] = system === '' ? [] : [{ role: 'system', content: system }]
      tasks.push({ harbor, environment, messages: [...said, { role: 'user', content: instruction }] })
    } catch (thrown) {
      faults.push(asError(thrown).message)
    }
  if (faults.length > 0)
    throw new TroupeError('task.cannot_run', {
      boundary: 'config',
      retriable: false,
      message: `these tasks of ${directory} cannot be run, so the run does not start:\n${faults.map(fault => `  ${fault}`).join('\n')}`,
      hint: `change the tasks or the section environments; npx troupe tasks check ${directory} checks them again`,
    })
  return tasks
}

/** Time in ms, added to the verifier's deadline between two steps of a task: for the next setup.sh and health check. */
const setUpMs = 600_000

const stepsOf = ({ steps }: HarborTask): Pick<TaskEnvironment, 'steps'> => {
  const verifierMs = Math.max(...steps.map(({ verifier }) => verifier.timeout_sec * 1000))
  return steps.length === 1 ? {} : { steps: { count: steps.length, timeoutMs: verifierMs + setUpMs } }
}

/** Text after the instruction, since the system message lacks it: the task's MCP servers and how to call them. */
function mcpText({ config }: HarborTask): string {
  const names = config.environment.mcp_servers.map(({ name }) => name)
  if (names.length === 0) return ''
  const list = printToolCall(mcpTool.name, { server: names[0] })
  const call = printToolCall(mcpTool.name, { server: names[0], tool: 'NAME', arguments: {} })
  return `\n\nMCP servers of this task: ${names.join(', ')}. List the tools of one:\n${list}\nCall one:\n${call}`
}

export interface Split {
  readonly train: readonly TerminalTask[]
  readonly evaluation: readonly TerminalTask[]
}

/**
 * Holds out `problems` tasks for the evaluation, at most half of all (rounded down). A digest of their names decides
 * which.
 */
export function splitTasks(tasks: readonly TerminalTask[], problems: number): Split {
  const count = Math.min(problems, Math.floor(tasks.length / 2))
  const rank = ({ harbor }: TerminalTask) => createHash('sha256').update(harbor.name).digest('hex')
  const held = new Set([...tasks].sort((a, b) => (rank(a) < rank(b) ? -1 : 1)).slice(0, count))
  return { train: tasks.filter(task => !held.has(task)), evaluation: tasks.filter(task => held.has(task)) }
}

export function taskSource({ train, evaluation }: Split): TaskSource {
  return {
    train: index => taskOf(train[index % train.length]!),
    evaluation(index) {
      if (evaluation.length > 0) return taskOf(evaluation[index % evaluation.length]!)
      throw new TroupeError('task.none', {
        boundary: 'config',
        retriable: false,
        message: `no task is held out for the evaluation: of ${train.length + evaluation.length} in all, at most half and at most evaluation.problems are held out`,
        hint: 'give at least two tasks and set evaluation.problems to 1 or more, or set it to 0 for no evaluation',
      })
    },
    dropped: {},
    notes: [...train, ...evaluation].flatMap(({ harbor }) =>
      unenforcedLimits(harbor).map(limit => `task ${harbor.name}: ${limit} (environments.storage=no-limit)`),
    ),
    size: train.length,
  }
}

const taskOf = ({ harbor, environment, messages }: TerminalTask): Task => ({
  id: taskId(harbor.name),
  messages,
  truth: '',
  reward: '',
  environment,
})

/**
 * Returns the directory itself if it is a task, else the tasks directly below it, by name. @throws TroupeError
 * task.none
 */
function taskDirectories(directory: string): readonly string[] {
  if (existsSync(join(directory, 'task.toml'))) return [directory]
  const names = existsSync(directory) ? readdirSync(directory).sort() : []
  const found = names.map(name => join(directory, name)).filter(path => existsSync(join(path, 'task.toml')))
  if (found.length > 0) return found
  throw new TroupeError('task.none', {
    boundary: 'config',
    retriable: false,
    message: `${directory} holds no task, or does not exist: expected a task.toml in it or in a directory directly below it`,
    hint: "--set tasks=DIR names a task directory in Harbor's format, or a directory of them",
  })
}

async function refusals(
  task: HarborTask,
  driver: DriverName,
  { missing, capabilities, missingImages }: DriverHere,
): Promise<readonly string[]> {
  if (missing !== undefined) return [`the driver ${driver} cannot run here: ${missing}`]
  const images = await missingImages(task)
  return [...rolloutRefusals(task, capabilities), ...images.map(({ refused }) => refused)]
}
