/**
 * The only way out of a container with an allowlist: the proxy in this process, and a forwarder in the container's
 * network namespace (keeper/forward.py). The container has no other network.
 *
 * in   a container that runs, hosts        out  the proxy on 127.0.0.1:3128 inside the container
 * Invariant: an allowlist needs a Docker engine on this machine, and this process to be root. The forwarder ends with
 * this process.
 */
import { spawn } from 'node:child_process'
import { mkdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { asError, endedHow } from '../../runtime/errors'
import { sandboxPythonPath } from '../../runtime/python'
import { within } from '../../runtime/within'
import { environmentError } from '../drivers/errors'
import { AllowlistProxy } from '../network/allowlist'
import { type Engine, engineAddress } from './engine'

export interface Forwarder {
  close(): void
}

const startMs = 30_000

/** True on Linux, as root, if Docker's address is a Unix socket. `openForwarder` checks that the engine runs here. */
export const canForward = (): boolean =>
  process.platform === 'linux' && process.geteuid?.() === 0 && engineAddress()?.startsWith('unix:') === true

/**
 * Starts the proxy and the forwarder of a container. @throws TroupeError environment.unavailable if the engine runs on
 * another machine; environment.start_failed
 */
export async function openForwarder(
  engine: Engine,
  container: string,
  directory: string,
  hosts: readonly string[],
): Promise<Forwarder> {
  const { State } = await engine.call<{ State: { Pid: number } }>('GET', `/containers/${container}/json`)
  if (!isHere(State.Pid, container))
    throw environmentError(
      'environment.unavailable',
      `an allowlist needs a Docker engine on this machine; container ${container.slice(0, 12)} has no process here`,
    )
  mkdirSync(directory, { recursive: true, mode: 0o700 })
  const proxy = await AllowlistProxy.open(directory, hosts)
  const program = join(__dirname, '../keeper/forward.py')
  const words = ['-I', '-S', '-B', program, String(State.Pid), directory]
  const child = spawn(sandboxPythonPath() ?? 'python3', words, { stdio: ['ignore', 'pipe', 'pipe'] })
  let errors = ''
  child.stderr.setEncoding('utf8').on('data', text => {
    errors = (errors + text).slice(-2048)
  })
  const close = () => {
    child.kill('SIGKILL')
    proxy.close()
    rmSync(directory, { recursive: true, force: true })
  }
  const ready = new Promise<void>((resolve, reject) => {
    child.stdout.once('data', () => resolve())
    child.once('error', reject)
    child.once('exit', (code, signal) => reject(new Error(errors.trim() || `it ${endedHow(code, signal)}`)))
  })
  const failed = (why: string) =>
    environmentError(
      'environment.start_failed',
      `container ${container.slice(0, 12)}: the forwarder to its allowlist's proxy did not start: ${why}`,
    )
  try {
    await within(ready, startMs, () => failed(`not ready within ${startMs} ms`))
  } catch (thrown) {
    close()
    throw thrown instanceof Error && 'code' in thrown ? thrown : failed(asError(thrown).message)
  }
  child.unref()
  return { close }
}

/**
 * True if the container's process, whose pid the engine gave, is one of this machine: its cgroup names the container.
 */
function isHere(pid: number, container: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/cgroup`, 'utf8').includes(container)
  } catch {
    return false
  }
}
