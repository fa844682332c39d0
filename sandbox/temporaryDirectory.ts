/**
 * Makes temporary directories whose names identify the process that owns them, and removes those whose owner was
 * killed.
 *
 * in   a name      out  a private directory in the system's directory for temporary files
 * Invariant: a directory is removed only if its owner is dead: its name holds the owner's pid, start time, PID
 * namespace and boot, so a reused pid, a container that shares /tmp, or another host that shares TMPDIR causes no
 * mistake. Directories of other users, other boots and other PID namespaces stay: their owner may still live.
 */
import { createHash } from 'node:crypto'
import { lstatSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { SandboxError } from './errors'
import { isOutOfSpace } from './outOfSpace'

const OWNED = /^troupe-(?:[a-z0-9]+-)?([a-z0-9]+)-([a-z0-9]+)-([a-z0-9]+)-([0-9a-f]{10})-[A-Za-z0-9]{6}$/
let swept = false

/**
 * Makes a directory `troupe-NAME-OWNER-RANDOM`, mode 700. The first call removes what dead owners left.
 * @throws SandboxError sandbox.disk_full with the path
 */
export function temporaryDirectory(name: string): string {
  if (!swept) {
    swept = true
    sweepTemporaryDirectories()
  }
  const start = startOf(process.pid)
  const known = boot()
  const numbers = [process.pid, start ?? 0, namespace()].map(n => n.toString(36)).join('-')
  const owner = start === undefined || known === undefined ? '' : `${numbers}-${known}-`
  try {
    return mkdtempSync(join(tmpdir(), `troupe-${name}${name === '' ? '' : '-'}${owner}`))
  } catch (thrown) {
    throw isOutOfSpace(thrown) ? diskFull(tmpdir(), thrown) : thrown
  }
}

const diskFull = (directory: string, cause: unknown): SandboxError =>
  new SandboxError('sandbox.disk_full', {
    retriable: true,
    message: `the disk has no space or inodes left for temporary files in ${directory}, or a quota is used up`,
    hint: `free space or inodes on the file system of ${directory}, or set TMPDIR to a directory on another one`,
    cause,
  })

/**
 * Removes this user's directories whose owner is dead, if it was a process of this boot and of this PID namespace.
 * Returns their paths.
 */
export function sweepTemporaryDirectories(directory: string = tmpdir()): readonly string[] {
  const removed: string[] = []
  const here = namespace()
  const now = boot()
  for (const name of namesIn(directory)) {
    const match = OWNED.exec(name)
    if (!match || match[4] !== now) continue
    const [pid, start, space] = match.slice(1, 4).map(text => Number.parseInt(text, 36)) as [number, number, number]
    if (space !== here || here === 0 || startOf(pid) === start) continue
    const path = join(directory, name)
    try {
      const { uid } = lstatSync(path)
      if (uid !== process.getuid?.() || !lstatSync(path).isDirectory()) continue
      rmSync(path, { recursive: true, force: true })
      removed.push(path)
    } catch {
      // Another process removes the directory at the same time, or it cannot be removed: then it stays.
    }
  }
  return removed
}

/** Names in a directory; none if it cannot be listed, which must not keep a process from its own directory. */
function namesIn(directory: string): readonly string[] {
  try {
    return readdirSync(directory)
  } catch {
    return []
  }
}

/** Short hash of the id of this host's boot; undefined where there is no /proc. */
function boot(): string | undefined {
  try {
    const id = readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim()
    return createHash('sha256').update(id).digest('hex').slice(0, 10)
  } catch {
    return undefined
  }
}

/**
 * Returns the time at which a process started, in clock ticks since boot; undefined if there is no such process, it is
 * a zombie, or /proc cannot be read.
 */
function startOf(pid: number): number | undefined {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'latin1')
      .replace(/^.*\) /s, '')
      .split(' ')
    return fields[0] === 'Z' ? undefined : Number(fields[19])
  } catch {
    return undefined
  }
}

/** Number of this process's PID namespace; 0 where it cannot be read. */
function namespace(): number {
  try {
    return Number(/\d+/.exec(readlinkSync('/proc/self/ns/pid'))?.[0] ?? 0)
  } catch {
    return 0
  }
}
