/**
 * Makes temporary directories whose names tell the owner process, and removes those whose owner was killed.
 *
 * in   a name      out  a private directory in the system's directory for temporary files
 * Invariant: a directory is removed only if its owner is dead: its name holds the owner's pid, start time and PID
 * namespace, so a reused pid or a container that shares /tmp causes no mistake. Directories of other users stay.
 */
import { lstatSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const OWNED = /^troupe-(?:[a-z0-9]+-)?([a-z0-9]+)-([a-z0-9]+)-([a-z0-9]+)-[A-Za-z0-9]{6}$/
let swept = false

/** Makes a directory `troupe-NAME-OWNER-RANDOM`, mode 700. The first call removes what dead owners left. */
export function temporaryDirectory(name: string): string {
  if (!swept) {
    swept = true
    sweepTemporaryDirectories()
  }
  const start = startOf(process.pid)
  const owner = start === undefined ? '' : `${[process.pid, start, namespace()].map(n => n.toString(36)).join('-')}-`
  return mkdtempSync(join(tmpdir(), `troupe-${name}${name === '' ? '' : '-'}${owner}`))
}

/** Removes the directories of owners that are dead. Returns their paths. */
export function sweepTemporaryDirectories(directory: string = tmpdir()): readonly string[] {
  const removed: string[] = []
  const here = namespace()
  for (const name of readdirSync(directory)) {
    const match = OWNED.exec(name)
    if (!match) continue
    const [pid, start, space] = match.slice(1).map(text => Number.parseInt(text, 36)) as [number, number, number]
    if (space !== here || here === 0 || startOf(pid) === start) continue
    const path = join(directory, name)
    try {
      const { uid } = lstatSync(path)
      if (uid !== process.getuid?.() || !lstatSync(path).isDirectory()) continue
      rmSync(path, { recursive: true, force: true })
      removed.push(path)
    } catch {
      // Another process sweeps it at the same time.
    }
  }
  return removed
}

/** Returns the time at which a process started, in clock ticks since boot; undefined if there is no such process. */
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
