/**
 * Ends processes that may not want to end.
 *
 * in   process ids, or the mark that a call's environment carries      out  signals
 * Invariant: nothing here throws because a process is already gone.
 */
import { readdirSync, readFileSync } from 'node:fs'

/** The variable in a call's environment whose value is the call's own; every process it starts inherits it. */
export const MARK = 'TROUPE_SANDBOX_CALL'

/** Of a sweep, 2 ms apart. */
const ROUNDS = 50
const idle = new Int32Array(new SharedArrayBuffer(4))

/** Sends a signal to a process, or to a group where `pid` is negative. False where there is none (or it is not ours). */
export function signalTo(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    process.kill(pid, signal)
    return true
  } catch {
    return false
  }
}

/** Processes that carry the mark. Code that clears its environment and starts anew escapes this, not its launcher. */
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
 * Kills what a call left when its launcher died without cleaning up: both groups, then whoever carries the mark.
 * Several rounds, because a process may fork between being listed and being killed.
 */
export function sweep(mark: string, launcher: number, child: number): void {
  if (child > 0) signalTo(-child, 'SIGKILL')
  if (launcher > 0) signalTo(-launcher, 'SIGKILL')
  for (let round = 0; round < ROUNDS; round++) {
    const left = marked(mark).filter(pid => pid !== process.pid)
    if (left.length === 0) return
    for (const pid of left) signalTo(pid, 'SIGKILL')
    Atomics.wait(idle, 0, 0, 2) // a process that was killed is listed until the kernel has torn it down
  }
}
