/**
 * `troupe tasks check DIR…`: reads task directories, and prints what each task needs and which of it the driver cannot
 * provide.
 *
 * in   directories: a task, or a directory of tasks        out  a table, or with --json one line a task
 * Invariant: exit code 1 if a task cannot be read, if its driver cannot run here, or if it needs something that the
 * driver cannot provide, such as an image that is not on this machine. Nothing is started.
 */
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Command } from 'commander'
import {
  type DriverHere,
  type DriverName,
  driverHere,
  loadTask,
  type Need,
  needsOf,
  storeAt,
  type Task,
  usualDriver,
  withOverrides,
} from '../../environments'
import { asError, TroupeError } from '../../runtime/errors'
import { escapeForTerminal } from '../io/terminal'

interface Options {
  readonly driver?: string
  readonly store?: string
  /** False if --no-network is given. */
  readonly network: boolean
  /** False if --no-storage-limit is given. */
  readonly storageLimit: boolean
  readonly json?: true
}

export const knownDrivers: readonly DriverName[] = ['local', 'oci', 'docker']

interface Checked {
  readonly directory: string
  readonly task?: Task
  readonly driver?: string
  readonly needs: readonly Need[]
  readonly error?: string
}

export function registerCheck(tasks: Command): void {
  tasks
    .command('check')
    .description('read task directories; print what the tasks need, and what of it the driver does not support')
    .argument('<directories...>', 'task directories, or directories that contain task directories')
    .option(
      '--driver <name>',
      `driver to check against: ${knownDrivers.join(', ')}; default: the one that a run chooses`,
    )
    .option('--store <dir>', 'directory of images and environments; default: <TROUPE_HOME>/environments')
    .option('--no-network', 'check as if no task asked for a network')
    .option('--no-storage-limit', 'check as if limits on disk space were not enforced')
    .option('--json', 'a JSON line for each task')
    .action(async (directories: readonly string[], options: Options) => {
      const asked = new Map<DriverName, Promise<DriverHere>>()
      const hereOf = (name: DriverName) => {
        const here = asked.get(name) ?? driverHere(name, storeAt(options.store))
        asked.set(name, here)
        return here
      }
      const checked: Checked[] = []
      for (const directory of directories.flatMap(tasksIn)) checked.push(await checkTask(directory, options, hereOf))
      for (const one of checked) process.stdout.write(options.json ? jsonLine(one) : table(one))
      const bad = checked.filter(
        ({ error, needs }) => error !== undefined || needs.some(({ refused }) => refused !== undefined),
      )
      if (!options.json) process.stdout.write(`${checked.length - bad.length} of ${checked.length} tasks can be run\n`)
      if (bad.length > 0 || checked.length === 0) process.exitCode = 1
    })
}

/** Returns the tasks directly below the directory; the directory itself if it is a task, or has no task below it. */
export function tasksIn(directory: string): readonly string[] {
  if (existsSync(join(directory, 'task.toml')) || !existsSync(directory)) return [directory]
  const found = readdirSync(directory)
    .sort()
    .map(name => join(directory, name))
    .filter(path => existsSync(join(path, 'task.toml')))
  return found.length > 0 ? found : [directory]
}

async function checkTask(
  directory: string,
  options: Options,
  hereOf: (name: DriverName) => Promise<DriverHere>,
): Promise<Checked> {
  try {
    const task = taskFor(directory, options)
    const driver = driverFor(task, options.driver, options.store)
    const { missing, capabilities, missingImages } = await hereOf(driver)
    const needs: Need[] = [...needsOf(task, capabilities), ...(await missingImages(task))]
    if (missing !== undefined) needs.unshift({ where: '--driver', what: `the driver ${driver}`, refused: missing })
    return { directory, task, driver, needs }
  } catch (thrown) {
    if (thrown instanceof TroupeError && thrown.code === 'tasks.no_driver') throw thrown
    return { directory, needs: [], error: asError(thrown).message }
  }
}

/** Loads a task, without its network or its limit on disk space if the command line says so. */
export const taskFor = (
  directory: string,
  { network, storageLimit }: Pick<Options, 'network' | 'storageLimit'>,
): Task =>
  withOverrides(loadTask(directory), {
    ...(network ? {} : { network: 'no-network' }),
    ...(storageLimit ? {} : { storage: 'no-limit' }),
  })

/** Name of the wanted driver, or of the one that a run would choose. @throws TroupeError tasks.no_driver */
export function driverFor(task: Task, wanted: string | undefined, store: string | undefined): DriverName {
  if (wanted === undefined) return usualDriver(task, storeAt(store))
  const known = knownDrivers.find(name => name === wanted)
  if (known !== undefined) return known
  throw new TroupeError('tasks.no_driver', {
    boundary: 'cli',
    retriable: false,
    message: `--driver: unknown driver '${wanted}'; known drivers: ${knownDrivers.join(', ')}`,
  })
}

function table({ directory, task, driver, needs, error }: Checked): string {
  const lines = [`${task?.name ?? directory}${driver === undefined ? '' : `  (driver ${driver})`}`]
  if (error !== undefined) lines.push(`  cannot be read: ${error}`)
  for (const { where, what, refused } of needs)
    lines.push(
      `  ${refused === undefined ? 'ok     ' : 'REFUSED'}  ${what}${refused === undefined ? '' : `: ${refused}`}  [${where}]`,
    )
  for (const field of task?.unknownFields ?? []) lines.push(`  note     task.toml has an unknown field: ${field}`)
  return `${lines.map(escapeForTerminal).join('\n')}\n`
}

const jsonLine = ({ directory, task, driver, needs, error }: Checked) =>
  `${JSON.stringify({ directory, name: task?.name, driver, ok: error === undefined && needs.every(({ refused }) => refused === undefined), needs, unknownFields: task?.unknownFields, error })}\n`
