/**
 * A Python process that has imported torch, and the processes that it forks (policy/troupe_policy/fork_server.py).
 *
 * in   a module of troupe_policy, its arguments      out  a process with the streams and events of a child process
 * Invariant: the fork server ends with this process, or 10 s after its last fork has ended. Its forks end with it.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { EventEmitter } from 'node:events'
import { rm } from 'node:fs/promises'
import { createConnection, type Socket } from 'node:net'
import { constants } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Readable, Writable } from 'node:stream'
import { pythonEnvironment } from '../runtime/python'
import { temporaryDirectory } from '../sandbox/temporaryDirectory'

/** Interface that spawned and forked processes share. 'close' comes after the last byte of both outputs. */
export interface PythonProcess extends EventEmitter {
  readonly pid?: number | undefined
  readonly stdin: Writable
  readonly stdout: Readable
  readonly stderr: Readable
  readonly signalCode: NodeJS.Signals | null
  kill(signal: NodeJS.Signals): boolean
}

/** Upper bound on the start of a fork server, in ms. If it takes longer, processes are spawned instead of forked. */
const startMs = 120_000
/** Milliseconds without a forked process after which a fork server ends. */
export const idleMs = 10_000
/**
 * Number of bytes that the fork server's command line reserves: each fork writes its own command line there, for `ps`.
 */
const titleBytes = 4096

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
 * Returns the fork server of an interpreter, started at the first call; undefined if it does not start within
 * `startMs`. After it has ended, the next call starts another.
 */
export function openForkServer(python: string): Promise<ForkServer | undefined> {
  const waiting = setInterval(() => {}, startMs) // a start that nobody waits for does not keep this process alive
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

type Report = { ready?: true; id?: number; pid?: number; status?: number }

async function startServer(python: string, forget: () => void): Promise<ForkServer | undefined> {
  const directory = temporaryDirectory('')
  const path = join(directory, 'fork')
  const words = ['-m', 'troupe_policy.fork_server', path, '--parent', String(process.pid)]
  const child = spawn(python, [...words, '--title', '.'.repeat(titleBytes)], {
    stdio: ['pipe', 'pipe', 'ignore'],
    detached: true,
    env: pythonEnvironment(),
  })
  child.stdin.on('error', () => {}) // an error is ignored: 'close' reports the end
  const forks = new Map<number, Fork>()
  const starting = new Map<number, (pid: number) => void>()
  let next = 0
  let users = 0
  let idle: NodeJS.Timeout | undefined
  const end = () => {
    forget()
    child.stdin.end()
  }
  const keepAlive = (isNeeded: boolean) => {
    for (const part of [child, child.stdin, child.stdout] as unknown as ChildProcess[]) {
      if (isNeeded) part.ref()
      else part.unref()
    }
  }
  keepAlive(false)
  // While it has no forked process, the fork server does not keep this process alive; after `idleMs` it ends.
  const use = (change: 1 | 0 | -1) => {
    users += change
    clearTimeout(idle)
    keepAlive(users > 0)
    if (users === 0) idle = setTimeout(end, idleMs).unref()
  }
  const gone = new Promise<void>(resolve => {
    child.once('error', () => resolve())
    child.once('exit', () => resolve())
  })
  const ready = new Promise<boolean>(resolve => {
    createInterface({ input: child.stdout }).on('line', line => {
      const report = JSON.parse(line) as Report
      if (report.ready) resolve(true)
      else if (report.id !== undefined) starting.get(report.id)?.(report.pid!)
      else forks.get(report.pid!)?.ended(report.status!)
    })
    setTimeout(resolve, startMs, false).unref()
    void gone.then(() => resolve(false))
  })
  void gone.then(async () => {
    forget()
    clearTimeout(idle)
    for (const fork of forks.values()) fork.ended(-constants.signals.SIGKILL)
    await rm(directory, { recursive: true, force: true })
  })
  const isReady = await ready
  use(0)
  if (!isReady) {
    child.kill('SIGKILL')
    return undefined
  }
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
        const argv = [module, ...args(child.pid!)]
        stdio.write(`${JSON.stringify({ id, stream: 'stdio', argv, env, cwd: process.cwd() })}\n`)
        stderr.write(`${JSON.stringify({ id, stream: 'stderr' })}\n`)
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

function connected(path: string): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = createConnection({ path, allowHalfOpen: true }, () => resolve(socket))
    socket.once('error', reject)
  })
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
