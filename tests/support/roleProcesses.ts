/**
 * Starts the processes of a run with roles, as on several hosts that share a directory.
 *
 * in   a broker's address, a directory
 * out  processes by name, which a test signals and starts again; the run's journal
 * Invariant: after `end` none of the processes runs, nor any of their descendants.
 */
import type { Role } from '../../actors/run/run'
import { runId } from '../../messages/ids'
import { type Bus, openKafkaBus } from '../../runtime/bus'
import { memoryBlobs } from '../../runtime/bus/blobs'
import { asError } from '../../runtime/errors'
import type { Journal } from '../../runtime/journal/journal'
import { openJournal } from '../../runtime/journal/openJournal'
import { type Finished, isAlive, type Running, troupe } from './cli'
import { descendantsOf } from './descendants'
import { until } from './until'

/** Session timeout of consumers in a chaos run, ms. */
export const sessionMs = 6000
/** Processes of a chaos run by name, with their roles. */
export const parts: readonly (readonly [string, Exclude<Role, 'all'>])[] = [
  ['learner-1', 'learner'],
  ['learner-2', 'learner'],
  ['scheduler-1', 'scheduler'],
  ['scheduler-2', 'scheduler'],
  ['coordinator-1', 'coordinator'],
  ['coordinator-2', 'coordinator'],
  ['inference', 'inference'],
  ['tools-1', 'tools'],
  ['tools-2', 'tools'],
  ['verifier', 'verifier'],
]

export interface RoleProcesses {
  start(name: string, role: Exclude<Role, 'all'>, ...args: readonly string[]): void
  /**
   * Sends a signal to the process alone; its children end with it. A process killed by SIGKILL is no failure for
   * `check`.
   */
  signal(name: string, signal: NodeJS.Signals): void
  /** Pids of the processes that run. */
  pids(): readonly number[]
  /** Names of processes that ended with an error and without being killed by `signal`. */
  failed(): readonly string[]
  /** Exit code of the process; null if a signal ended it, undefined while it runs. */
  exitCode(name: string): number | null | undefined
  /** What it has written to stderr so far. */
  said(name: string): string
  done(name: string): Promise<Finished>
  /** Throws, with the end of its stderr, if a process ended with an error and without being killed by `signal`. */
  check(): Promise<void>
  /** Waits until `what` resolves with true; an error also has the end of each process's stderr. */
  happens(what: () => Promise<boolean>, timeoutMs?: number): Promise<void>
  /** Opens the run's journal once its topics are there. @param timeoutMs default: 2 minutes */
  journal(timeoutMs?: number): Promise<Journal>
  end(): Promise<void>
}

interface One {
  readonly running: Running
  ended: Finished | undefined
  killed: boolean
}

export interface RoleProcessesOptions {
  /** Variables of a process, by its name. */
  readonly envOf?: (name: string) => NodeJS.ProcessEnv
  /** The address under which a process reaches the broker, by its name. Default: `address`. */
  readonly addressOf?: (name: string) => string
}

export function roleProcesses(
  address: string,
  directory: string,
  run: string,
  { envOf = () => ({}), addressOf = () => address }: RoleProcessesOptions = {},
): RoleProcesses {
  const all = new Map<string, One>()
  let bus: Bus | undefined
  const get = (name: string): One => {
    const one = all.get(name)
    if (one === undefined) throw new RangeError(`no process is named ${name}`)
    return one
  }
  const failed = (): readonly string[] =>
    [...all].flatMap(([name, { ended, killed }]) => (killed || ended === undefined || ended.code === 0 ? [] : [name]))
  const check = async (): Promise<void> => {
    for (const name of failed()) {
      const { code, signal, stderr } = get(name).ended!
      throw new Error(`${name} ended with ${code ?? signal}: ${stderr.slice(-2000)}`)
    }
  }
  return {
    start(name, role, ...args) {
      const command = ['train', 'quickstart', '--bus', addressOf(name), '--run', run, '--role', role, ...args]
      const one: One = { running: troupe(command, envOf(name), directory), ended: undefined, killed: false }
      one.running.done.then(finished => {
        one.ended = finished
      })
      all.set(name, one)
    },
    signal(name, signal) {
      const one = get(name)
      if (signal === 'SIGKILL') one.killed = true
      one.running.process.kill(signal)
    },
    pids: () => [...all.values()].flatMap(({ running, ended }) => (ended === undefined ? [running.process.pid!] : [])),
    failed,
    exitCode: name => get(name).ended?.code,
    said: name => get(name).running.said(),
    done: name => get(name).running.done,
    check,
    async happens(what, timeoutMs = 240_000) {
      const holds = async () => {
        await check()
        return what()
      }
      await until(holds, timeoutMs, 250).catch(thrown => {
        const said = [...all].map(([name, { running }]) => `${name}: ${running.said().slice(-300)}`)
        throw new Error(`${asError(thrown).message}\n${said.join('\n')}`)
      })
    },
    async journal(timeoutMs = 120_000) {
      bus ??= await openKafkaBus(address)
      const open = bus
      await until(async () => (await open.listTopics()).some(t => t.topic === `troupe.${run}.runs`), timeoutMs, 200)
      return openJournal(open, memoryBlobs(), runId(run))
    },
    async end() {
      const children = [...all.values()].flatMap(({ running }) => descendantsOf(running.process.pid!))
      for (const { running } of all.values()) {
        running.process.kill('SIGKILL')
        running.process.kill('SIGCONT') // lets a stopped process end
        await running.done
      }
      await until(() => !children.some(isAlive), 20_000, 50)
      await bus?.close()
    },
  }
}
