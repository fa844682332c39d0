/**
 * Who writes a log: a process, named so that a later one can tell whether it still lives.
 *
 * in   the holder that the log names     out  whether it lives; who we are
 * Invariant: a pid alone proves nothing, since pids are used again: boot, start time and pid namespace go with it. A
 * holder in another namespace (a container beside ours) cannot be looked up; it lives while it touches its heartbeat.
 */
import { readFileSync, readlinkSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { systemEffects } from '../../effects'

export interface Holder {
  readonly pid: number
  /** Clock ticks since boot, from /proc/<pid>/stat; null where there is no /proc. */
  readonly startTime: string | null
  readonly boot: string | null
  readonly namespace: string | null
}

const heartbeatFile = 'writer.heartbeat'
export const heartbeatMs = 3_000
/** A heartbeat older than this belongs to nobody that lives. */
const heartbeatDeadMs = 15_000

export function thisProcess(): Holder {
  return {
    pid: process.pid,
    startTime: startTimeOf(process.pid),
    boot: attempt(() => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()),
    namespace: attempt(() => readlinkSync('/proc/self/ns/pid')),
  }
}

/** Whether `holder` still runs. `directory` is where its heartbeat is. */
export function lives(holder: Holder, directory: string, me: Holder = thisProcess()): boolean {
  if (holder.boot !== me.boot) return false
  if (holder.namespace !== me.namespace) return hasHeartbeat(directory)
  if (me.startTime !== null) return startTimeOf(holder.pid) === holder.startTime
  return attempt(() => process.kill(holder.pid, 0)) === true
}

/** Whether some writer of `directory` said lately that it lives. */
export function hasHeartbeat(directory: string): boolean {
  const beat = attempt(() => statSync(join(directory, heartbeatFile)).mtimeMs)
  return beat !== null && systemEffects.now() - beat < heartbeatDeadMs
}

/** Says that this process lives, to those who cannot look it up. */
export function beat(directory: string): void {
  const path = join(directory, heartbeatFile)
  const now = new Date(systemEffects.now())
  // A full disk must not end the writer here: its appends say so, and the fence holds without a heartbeat.
  if (attempt(() => utimesSync(path, now, now) ?? true) === null) attempt(() => writeFileSync(path, ''))
}

/** When a process started, or null when it is gone or only waits to be reaped. */
export function startTimeOf(pid: number): string | null {
  const stat = attempt(() => readFileSync(`/proc/${pid}/stat`, 'utf8'))
  if (stat === null) return null
  // The command name stands in parentheses and may hold spaces and parentheses: fields count from behind the last one.
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
