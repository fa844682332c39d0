/**
 * Starts the process of a fork server: spawns one, which imports torch, or forks one from a fork server that several
 * processes share and that has imported torch.
 *
 * in   an interpreter, a socket path, TROUPE_FORK_SERVER (socket of the shared fork server)     out  the process, ready
 * Invariant: either process ends when its stdin ends, so with this process, even after kill -9. A shared fork server of
 * another interpreter, checkout or container (namespaces) is not used.
 */
import { spawn } from 'node:child_process'
import { readlinkSync } from 'node:fs'
import { createConnection, type Socket } from 'node:net'
import { createInterface, type Interface } from 'node:readline'
import type { Writable } from 'node:stream'
import { policyDirectory, pythonEnvironment } from '../runtime/python'

export interface ForkServerProcess {
  readonly pid: number
  readonly stdin: Writable
  /** Lines of the process's stdout after the first one, which reports that the process is ready. */
  readonly lines: Interface
  /** Resolves when the process has ended. */
  readonly gone: Promise<void>
  /** Decides if this process stays alive while the fork server lives. */
  keepAlive(isNeeded: boolean): void
}

/** Upper bound on the start of a fork server, in ms. If it takes longer, processes are spawned instead of forked. */
export const startMs = 120_000
/**
 * Number of bytes that the fork server's command line reserves: each fork writes its own command line there, for `ps`.
 */
const titleBytes = 4096

interface Ready {
  readonly pid: number
  readonly python: string
  readonly package: string
  readonly namespaces: readonly string[]
}

interface Starting extends Omit<ForkServerProcess, 'pid'> {
  kill(): void
}

/**
 * Starts the process, which will listen on the socket `path`. Resolves with undefined if a spawned process is not ready
 * within `startMs`.
 */
export async function startForkServerProcess(python: string, path: string): Promise<ForkServerProcess | undefined> {
  const shared = process.env.TROUPE_FORK_SERVER
  if (shared) {
    const forked = await forkedFrom(shared, path).catch(() => undefined) // else a process is spawned
    const ready = forked && (await readyLine(forked))
    if (forked && ready && isUsable(ready, python)) return { ...forked, pid: ready.pid }
    forked?.kill()
  }
  const spawned = spawnedFor(python, path)
  const ready = await readyLine(spawned)
  if (ready !== undefined) return { ...spawned, pid: ready.pid }
  spawned.kill()
  return undefined
}

/** True if a fork of the shared fork server has the interpreter, the package and the namespaces of a spawned process. */
function isUsable(ready: Ready, python: string): boolean {
  const own = ['mnt', 'net', 'pid'].map(kind => readlinkSync(`/proc/self/ns/${kind}`))
  return (
    ready.python === python &&
    ready.package === policyDirectory() &&
    own.every((name, k) => ready.namespaces[k] === name)
  )
}

function spawnedFor(python: string, path: string): Starting {
  const words = ['-m', 'troupe_policy.fork_server', path, '--parent', String(process.pid)]
  const child = spawn(python, [...words, '--title', '.'.repeat(titleBytes)], {
    stdio: ['pipe', 'pipe', 'ignore'],
    detached: true,
    env: pythonEnvironment(),
  })
  child.stdin.on('error', () => {}) // an error is ignored: `gone` reports the end
  const parts = [child, child.stdin, child.stdout] as unknown as Socket[]
  return {
    stdin: child.stdin,
    lines: createInterface({ input: child.stdout }),
    gone: new Promise(resolve => {
      child.once('error', () => resolve())
      child.once('exit', () => resolve())
    }),
    keepAlive: isNeeded => keep(parts, isNeeded),
    kill: () => child.kill('SIGKILL'),
  }
}

/** Asks the shared fork server for a process that is a fork server, too. */
async function forkedFrom(shared: string, path: string): Promise<Starting> {
  const sockets = await Promise.all([connected(shared), connected(shared)])
  const [stdio, stderr] = sockets
  for (const socket of sockets) {
    socket.on('error', () => {}) // an error is ignored: `gone` reports the end
    socket.once('end', () => socket.end())
  }
  const argv = ['troupe_policy.fork_server', path, '--for', String(process.pid)]
  requestFork(stdio, stderr, { id: path, argv, env: pythonEnvironment() }) // the path is unique, so it is the id
  stderr.resume()
  return {
    stdin: stdio,
    lines: createInterface({ input: stdio }),
    gone: new Promise(resolve => stdio.once('close', () => resolve())),
    keepAlive: isNeeded => keep(sockets, isNeeded),
    kill() {
      for (const socket of sockets) socket.destroy()
    },
  }
}

/** Resolves with the first line; undefined if the process ends first, or after `startMs`. */
function readyLine({ lines, gone, keepAlive }: Starting): Promise<Ready | undefined> {
  keepAlive(false)
  return new Promise(resolve => {
    lines.once('line', line => resolve(JSON.parse(line) as Ready))
    setTimeout(resolve, startMs, undefined).unref()
    void gone.then(() => resolve(undefined))
  })
}

function keep(parts: readonly Socket[], isNeeded: boolean): void {
  for (const part of parts) {
    if (isNeeded) part.ref()
    else part.unref()
  }
}

interface ForkRequest {
  /** Unique among the requests to one fork server. */
  readonly id: number | string
  /** The module of troupe_policy, and its arguments. */
  readonly argv: readonly string[]
  readonly env: NodeJS.ProcessEnv
}

/** Asks a fork server for a process with these two connections as its streams, in this process's working directory. */
export function requestFork(stdio: Socket, stderr: Socket, { id, ...program }: ForkRequest): void {
  stdio.write(`${JSON.stringify({ id, stream: 'stdio', ...program, cwd: process.cwd() })}\n`)
  stderr.write(`${JSON.stringify({ id, stream: 'stderr' })}\n`)
}

/** Connects to a fork server. */
export function connected(path: string): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = createConnection({ path, allowHalfOpen: true }, () => resolve(socket))
    socket.once('error', reject)
  })
}
