/**
 * Starts Python processes of troupe_policy. Those that need torch are forked from one process that has imported it: 0.1
 * s instead of 5 s of CPU time each, and one copy of the libraries in memory.
 *
 * in   a module, its arguments      out  a process in a process group of its own, which Ctrl-C does not reach
 * Invariant: forks are used only on Linux and without a GPU driver: a fork is unsafe elsewhere, and a driver that was
 * started before a fork does not work after it. Where no fork server starts, the process is spawned, so that its
 * own errors show what the set-up lacks.
 */
import { spawn } from 'node:child_process'
import { endedHow } from '../runtime/errors'
import { pythonEnvironment, torchPythonPath } from '../runtime/python'
import { outputTail } from '../runtime/secrets/outputTail'
import { openForkServer, type PythonProcess, prepareForkServer } from './forkServer'
import { hasGpuDriver } from './visibleDevices'

export interface PythonProgram {
  /** A module of troupe_policy with a function main(). */
  readonly module: string
  /** The module's command-line arguments; `parent` is the pid of the process whose death has to end it. */
  readonly args: (parent: number) => readonly string[]
  readonly python?: string
  /** Variables to set beside those of this process. If given, even empty, the process is spawned, not forked. */
  readonly env?: Readonly<Record<string, string>>
  /** False if the process must be spawned: it needs no torch, or has to see the GPUs of a lease. Default: true. */
  readonly mayFork?: boolean
}

const stderrTailChars = 4000
const canFork = process.platform === 'linux' && !hasGpuDriver()

/** Begins to import torch if processes are forked here. An error is ignored: the next start of a process meets it. */
export function prepareForks(): void {
  const start = async () => prepareForkServer(torchPythonPath())
  if (canFork) start().catch(() => {})
}

/** Starts a process. @throws TroupeError process.no_python if no Python is found, process.no_torch if it lacks torch */
export async function startPython(program: PythonProgram): Promise<PythonProcess> {
  const { module, args, mayFork = true, python = torchPythonPath() } = program
  const env = pythonEnvironment(program.env)
  const server = await (mayFork && canFork && program.env === undefined ? openForkServer(python) : undefined)
  if (server !== undefined) {
    try {
      return await server.fork({ module, args, env })
    } catch {
      // The fork server has just ended: the process is spawned.
    }
  }
  // The process is spawned after an await, so that the caller can listen before an interpreter that cannot be run emits
  // 'error'.
  return spawn(python, ['-m', module, ...args(process.pid)], { stdio: ['pipe', 'pipe', 'pipe'], detached: true, env })
}

/**
 * Runs a process to its end, and kills it after `timeoutMs`. Rejects if it does not exit with 0; the error has the end
 * of its stderr and, as execFile's, `signal` and `killed`.
 */
export async function runPython(program: PythonProgram, timeoutMs: number): Promise<void> {
  const child = await startPython(program)
  let killed = false
  child.stdin.on('error', () => {}) // an error is ignored: 'close' reports the end of the process
  child.stdout.resume()
  const stderr = outputTail([child.stderr], { chars: stderrTailChars })
  const timer = setTimeout(() => {
    killed = child.kill('SIGKILL')
  }, timeoutMs)
  try {
    await new Promise<void>((resolve, reject) => {
      child.once('error', reject)
      child.once('close', (code: number | null, signal: NodeJS.Signals | null) => {
        if (code === 0) return resolve()
        const how = killed ? `did not end within ${timeoutMs} ms` : endedHow(code, signal)
        reject(Object.assign(new Error(`${program.module} ${how}\n${stderr()}`), { code, signal, killed }))
      })
    })
  } finally {
    clearTimeout(timer)
  }
}
