/**
 * Finds out, once in each process, if this machine has what the drivers `oci` and `local` need.
 *
 * in   the processor's name; keeper/probe.py, which makes a cgroup and mounts an overlay
 * out  reasons why a driver cannot run, each with its cure; whether commands get the filter of system calls
 */
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { sandboxPythonPath } from '../../runtime/python'

interface Probe {
  readonly missing: readonly string[]
  /** True if libseccomp is installed, with which the filter of system calls is made. */
  readonly filter: boolean
}

/** Returns why a keeper cannot run on this machine (it needs Linux on x86_64 or aarch64); undefined: it can. */
export function machineMissing(): string | undefined {
  if (process.platform !== 'linux') return 'it needs Linux'
  if (['x64', 'arm64'].includes(process.arch)) return undefined
  return `it needs a processor of the kind x86_64 or aarch64, and this one is ${process.arch}`
}

let probed: Probe | undefined

export function probe(): Probe {
  probed ??= tryAll()
  return probed
}

function tryAll(): Probe {
  const words = ['-I', '-S', '-B', join(__dirname, '../keeper/probe.py')]
  const env = { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C.UTF-8' }
  const { stdout, stderr, error } = spawnSync(sandboxPythonPath() ?? 'python3', words, {
    ...{ env, encoding: 'utf8', timeout: 30_000 },
  })
  try {
    return JSON.parse(stdout) as Probe
  } catch {
    const reason = error?.message ?? stderr.trim().split('\n').at(-1)
    return { missing: [`keeper/probe.py, which tries what the driver needs, gave no result: ${reason}`], filter: false }
  }
}
