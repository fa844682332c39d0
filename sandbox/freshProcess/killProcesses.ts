/**
 * Signals and kills the processes of a call.
 *
 * in   pids, or the mark in the environment of a call's processes      out  signals
 * Invariant: a process that has ended already causes no error.
 */
import { readdirSync, readFileSync } from 'node:fs'

/**
 * Environment variable whose value is unique for each attempt at a call. Processes of the call inherit it, unless their
 * code clears it.
 */
export const MARK = 'TROUPE_SANDBOX_CALL'

/** Upper bound on the rounds of killCall, which are 2 ms apart. */
const ROUNDS = 50
const idle = new Int32Array(new SharedArrayBuffer(4))

/**
 * Sends a signal to a process, or to a process group if `pid` is negative. Returns false if there is no such process or
 * this user may not signal it.
 */
export function signalTo(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    process.kill(pid, signal)
    return true
  } catch {
    return false
  }
}

/**
 * Returns the pids of processes with this mark in their environment. A process that was executed with a cleared
 * environment is not found.
 */
function marked(mark: string): number[] {
  const needle = `${MARK}=${mark}\0`
  return readdirSync('/proc')
    .filter(name => /^\d+$/.test(name))
    .filter(name => {
      try {
        return readFileSync(`/proc/${name}/environ`, 'latin1').includes(needle)
      } catch {
        return false
      }
    })
    .map(Number)
}

/**
 * Kills the processes that are left of a call: the process groups of its launcher and of the launcher's child, then
 * every marked process. Works in rounds, since a process may fork between being listed and being killed.
 */
export function killCall(mark: string, launcher: number, child: number): void {
  if (child > 0) signalTo(-child, 'SIGKILL')
  if (launcher > 0) signalTo(-launcher, 'SIGKILL')
  for (let round = 0; round < ROUNDS; round++) {
    const left = marked(mark).filter(pid => pid !== process.pid)
    if (left.length === 0) return
    for (const pid of left) signalTo(pid, 'SIGKILL')
    Atomics.wait(idle, 0, 0, 2) // A killed process stays listed until the kernel has removed it.
  }
}
