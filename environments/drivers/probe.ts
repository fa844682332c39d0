/**
 * What this machine has for the drivers `oci` and `local`, tried once for each process.
 *
 * in   the processor's name; keeper/probe.py, which makes a cgroup and mounts an overlay
 * out  reasons why a driver cannot run, each with its cure; whether commands get the filter of system calls
 */
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { sandboxPythonPath } from '../../runtime/python'

interface Probe {
  readonly missing: readonly string[]
  /** Whether libseccomp is there, which makes the filter of system calls. */
  readonly filter: boolean
}

/** Says that the processor is none whose system calls the keeper knows; undefined: it knows them. */
export const machineMissing = (): string | undefined =>
  process.platform !== 'linux'
    ? 'it needs Linux'
    : ['x64', 'arm64'].includes(process.arch)
      ? undefined
      : `it needs a processor of the kind x86_64 or aarch64, and this one is ${process.arch}`

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
    return { missing: [`keeper/probe.py, which tries what it needs, did not end: ${reason}`], filter: false }
  }
}
