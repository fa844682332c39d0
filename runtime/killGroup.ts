/** Ends a process that was started as the leader of a group of its own (`detached`), and whatever it has started in that group. */
import type { ChildProcess } from 'node:child_process'

export function killGroup(child: ChildProcess): void {
  if (child.pid === undefined) return
  try {
    process.kill(-child.pid, 'SIGKILL')
  } catch {
    child.kill('SIGKILL') // the group is gone already, or was never made
  }
}
