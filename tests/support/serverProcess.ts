/**
 * Starts a real engine server (vLLM or SGLang) on loopback, in its own process.
 *
 * in   a command, its environment, the path that answers 200 once the server is up
 * out  the server's address, and a process that can be killed
 * Invariant: the server ends when this process ends, also by SIGKILL: the server's parent is a shell that kills the
 * server's process group when the shell's stdin closes.
 */
import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export interface ServerCommand {
  /** Name of the kind of server, for errors. */
  readonly kind: string
  readonly python: string
  /** Arguments of Python; they make the server listen at 127.0.0.1 and the port. */
  readonly args: (port: number) => readonly string[]
  readonly env: Readonly<Record<string, string>>
  /** Path that answers 200 once the server is up. */
  readonly upPath: string
}

export interface ServerProcess {
  readonly url: string
  readonly startedMs: number
  /** Interpreter of the venv that the server runs in. */
  readonly python: string
  /** Kills the server and the processes behind it with SIGKILL. */
  kill(): void
  log(): string
  stop(): Promise<void>
}

const startTimeoutMs = 300_000

export async function startServerProcess(command: ServerCommand): Promise<ServerProcess> {
  const { kind, python, upPath } = command
  const port = await freePort()
  const root = mkdtempSync(join(tmpdir(), 'troupe-server-'))
  const logFile = join(root, 'server.log')
  const began = performance.now()
  // `set -m` gives the server a process group of its own, whose id is $!. The trap keeps the shell alive when a signal
  // goes to its group (Ctrl-C, timeout), so that it can still end the server.
  const script =
    'trap : HUP INT TERM; set -m; log=$1; shift; "$@" >"$log" 2>&1 & echo $!; read -r _; kill -9 -$! 2>/dev/null'
  const shell = spawn('bash', ['-c', script, 'bash', logFile, python, ...command.args(port)], {
    env: { ...process.env, ...command.env },
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const pid = await new Promise<number>(resolve => shell.stdout.once('data', chunk => resolve(Number(chunk))))
  const log = () => (existsSync(logFile) ? readFileSync(logFile, 'utf8') : '')
  const stop = async () => {
    const ended = new Promise<void>(resolve =>
      shell.exitCode === null ? shell.once('exit', () => resolve()) : resolve(),
    )
    shell.stdin.end()
    await ended
    rmSync(root, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 })
  }
  const url = `http://127.0.0.1:${port}`
  while (!(await isUp(`${url}${upPath}`))) {
    const late = performance.now() - began > startTimeoutMs
    if (late || !isAlive(pid)) {
      const said = log().slice(-3000)
      await stop()
      throw new Error(`a ${kind} server ${late ? `did not start within ${startTimeoutMs} ms` : 'ended'}: ${said}`)
    }
    await new Promise(resolve => setTimeout(resolve, 200))
  }
  return { url, python, startedMs: performance.now() - began, kill: () => process.kill(-pid, 'SIGKILL'), log, stop }
}

const isUp = (url: string) =>
  fetch(url, { signal: AbortSignal.timeout(2000) }).then(
    reply => reply.status === 200,
    () => false,
  )

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

export async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as { port: number }
  await new Promise(resolve => server.close(resolve))
  return port
}
