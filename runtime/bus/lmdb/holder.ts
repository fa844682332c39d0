/**
 * Identity and liveness of the process that holds a log.
 *
 * in   the holder named in the log     out  true if it lives; the identity of this process
 * Invariant: where there is a /proc, a pid alone proves nothing, since pids are reused: the identity also has the boot
 * id, the process's start time and its pid namespace. A holder in another namespace (another container) cannot be
 * looked up; it counts as living while its heartbeat file is fresh. Without /proc, a process with the holder's pid
 * counts as the holder.
 */
import { readFileSync, readlinkSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { systemEffects } from '../../effects'

export interface Holder {
  readonly pid: number
  /** Start time of the process in clock ticks since boot, from /proc/<pid>/stat; null when there is no /proc. */
  readonly startTime: string | null
  readonly boot: string | null
  readonly namespace: string | null
}

const heartbeatFile = 'writer.heartbeat'
export const heartbeatMs = 3_000
/** Age of the heartbeat file, in ms, from which a holder in another pid namespace counts as dead. */
const heartbeatDeadMs = 15_000

export function thisProcess(): Holder {
  return {
    pid: process.pid,
    startTime: startTimeOf(process.pid),
    boot: attempt(() => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()),
    namespace: attempt(() => readlinkSync('/proc/self/ns/pid')),
  }
}

/** True while the process `holder` still runs. @param directory contains its heartbeat file */
export function lives(holder: Holder, directory: string, me: Holder = thisProcess()): boolean {
  if (holder.boot !== me.boot) return false
  if (holder.namespace !== me.namespace) return hasHeartbeat(directory)
  if (me.startTime !== null) return startTimeOf(holder.pid) === holder.startTime
  return attempt(() => process.kill(holder.pid, 0)) === true
}

/** True if a writer of `directory` has sent a heartbeat in the last 15 s. */
export function hasHeartbeat(directory: string): boolean {
  const beat = attempt(() => statSync(join(directory, heartbeatFile)).mtimeMs)
  return beat !== null && systemEffects.now() - beat < heartbeatDeadMs
}

/** Touches the heartbeat file, by which processes in other pid namespaces see that this one lives. */
export function beat(directory: string): void {
  const path = join(directory, heartbeatFile)
  const now = new Date(systemEffects.now())
  // Errors are ignored: a full disk must not end the writer here, since its appends report it. A writer whose lease was
  // taken over is refused at its next commit, whatever its heartbeat.
  if (attempt(() => utimesSync(path, now, now) ?? true) === null) attempt(() => writeFileSync(path, ''))
}

/**
 * Returns the start time of a process; null when it is gone, when it is dead and not reaped, or when there is no /proc.
 */
export function startTimeOf(pid: number): string | null {
  const stat = attempt(() => readFileSync(`/proc/${pid}/stat`, 'utf8'))
  if (stat === null) return null
  // The command name is in parentheses and may hold spaces and parentheses: fields count from the last one on.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return fields[0] === 'Z' || fields[0] === 'X' ? null : (fields[19] ?? null)
}

function attempt<T>(get: () => T): T | null {
  try {
    return get()
  } catch {
    return null
  }
}
