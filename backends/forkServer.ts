/**
 * Client of a fork server: a Python process that has imported torch and forks others (troupe_policy/fork_server.py).
 *
 * in   a module of troupe_policy, its arguments      out  a process with the streams and events of a child process
 * Invariant: the fork server ends with this process, or after 10 s without a forked process. Its forks end with it.
 */
import { EventEmitter } from 'node:events'
import { rm } from 'node:fs/promises'
import type { Socket } from 'node:net'
import { constants } from 'node:os'
import { join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { temporaryDirectory } from '../sandbox/temporaryDirectory'
import { connected, requestFork, startForkServerProcess, startMs } from './forkServerProcess'

/** Interface that spawned and forked processes share. 'close' comes after the last byte of both outputs. */
export interface PythonProcess extends EventEmitter {
  readonly pid?: number | undefined
  readonly stdin: Writable
  readonly stdout: Readable
  readonly stderr: Readable
  readonly signalCode: NodeJS.Signals | null
  kill(signal: NodeJS.Signals): boolean
}

/** Milliseconds without a forked process after which a fork server ends. */
export const idleMs = 10_000

export interface ForkServer {
  /** Forks a process. Rejects if the fork server ends first, or its socket refuses the connection. */
  fork(program: Forked): Promise<PythonProcess>
}

interface Forked {
  readonly module: string
  /** The module's command-line arguments; `parent` is the pid of the fork server. */
  readonly args: (parent: number) => readonly string[]
  readonly env: NodeJS.ProcessEnv
}

const servers = new Map<string, Promise<ForkServer | undefined>>()

/**
 * Returns the fork server of a Python interpreter, started at the first call; undefined if it does not start in time
 * (`startMs` per attempt). After it has ended, the next call starts another.
 */
export function openForkServer(python: string): Promise<ForkServer | undefined> {
  const waiting = setInterval(() => {}, startMs) // keeps this process alive while the caller waits
  return prepareForkServer(python).finally(() => clearInterval(waiting))
}

/** Starts the fork server of an interpreter, as `openForkServer` does, before it is needed. */
export function prepareForkServer(python: string): Promise<ForkServer | undefined> {
  let found = servers.get(python)
  if (found === undefined) {
    found = startServer(python, () => servers.delete(python))
    servers.set(python, found)
  }
  return found
}

type Report = { readonly id?: number; readonly pid: number; readonly status?: number }

async function startServer(python: string, forget: () => void): Promise<ForkServer | undefined> {
  const directory = temporaryDirectory('')
  const path = join(directory, 'fork')
  const removed = () => rm(directory, { recursive: true, force: true })
  const server = await startForkServerProcess(python, path)
  if (server === undefined) {
    forget()
    await removed()
    return undefined
  }
  const { pid: parent, stdin, lines, gone, keepAlive } = server
  const forks = new Map<number, Fork>()
  const starting = new Map<number, (pid: number) => void>()
  let next = 0
  let users = 0
  let idle: NodeJS.Timeout | undefined
  const end = () => {
    forget()
    stdin.end()
  }
  // While it has no forked process, the fork server does not keep this process alive; after `idleMs` it ends.
  const use = (change: 1 | 0 | -1) => {
    users += change
    clearTimeout(idle)
    keepAlive(users > 0)
    if (users === 0) idle = setTimeout(end, idleMs).unref()
  }
  lines.on('line', line => {
    const report = JSON.parse(line) as Report
    if (report.id !== undefined) starting.get(report.id)?.(report.pid)
    else forks.get(report.pid)?.ended(report.status!)
  })
  void gone.then(async () => {
    forget()
    clearTimeout(idle)
    for (const fork of forks.values()) fork.ended(-constants.signals.SIGKILL)
    await removed()
  })
  use(0)
  return {
    async fork({ module, args, env }) {
      const id = next++
      use(1)
      try {
        const [stdio, stderr] = await Promise.all([connected(path), connected(path)])
        const forked = new Promise<Fork>((resolve, reject) => {
          // The fork is registered before any await, since the fork server's next line of output may already report its
          // end.
          starting.set(id, pid => {
            const fork = new Fork(pid, stdio, stderr)
            forks.set(pid, fork)
            resolve(fork)
          })
          void gone.then(() => reject(new Error('the fork server has ended')))
        })
        requestFork(stdio, stderr, { id, argv: [module, ...args(parent)], env })
        const fork = await forked
        fork.once('close', () => {
          forks.delete(fork.pid)
          use(-1)
        })
        return fork
      } catch (thrown) {
        use(-1)
        throw thrown
      } finally {
        starting.delete(id)
      }
    },
  }
}

const signalNames = new Map(Object.entries(constants.signals).map(([name, number]) => [number, name as NodeJS.Signals]))

/** A forked process. */
class Fork extends EventEmitter implements PythonProcess {
  readonly stdin: Writable
  readonly stdout: Readable
  readonly stderr: Readable
  signalCode: NodeJS.Signals | null = null
  private status: number | undefined
  private open = 2

  constructor(
    readonly pid: number,
    stdio: Socket,
    stderr: Socket,
  ) {
    super()
    this.stdin = stdio
    this.stdout = stdio
    this.stderr = stderr
    for (const socket of [stdio, stderr]) {
      socket.on('error', () => {}) // a broken connection: 'close' follows
      socket.once('end', () => socket.end())
      socket.once('close', () => {
        this.open--
        this.closeIfDone()
      })
    }
  }

  /** Records the process's end. `status`: its exit code, or minus the number of the signal that ended it. */
  ended(status: number): void {
    if (this.status !== undefined) return
    this.status = status
    // A connection closes only after its last byte was read, and perhaps nobody reads the output: so it is discarded,
    // but later, when the caller has had time to add its listeners.
    setImmediate(() => {
      for (const output of [this.stdout, this.stderr]) output.resume()
    })
    this.signalCode = status < 0 ? (signalNames.get(-status) ?? null) : null
    this.closeIfDone()
  }

  kill(signal: NodeJS.Signals): boolean {
    if (this.status !== undefined) return false
    try {
      return process.kill(this.pid, signal)
    } catch {
      return false // the process has ended, but its end is not reported yet
    }
  }

  private closeIfDone(): void {
    if (this.status === undefined || this.open > 0) return
    this.emit('close', this.status < 0 ? null : this.status, this.signalCode)
  }
}
