/**
 * Kills a process that leads its own process group (`detached`), with everything in that group; without such a group,
 * only the process.
 */
import type { ChildProcess } from 'node:child_process'

export function killGroup(child: ChildProcess): void {
  if (child.pid === undefined) return
  try {
    process.kill(-child.pid, 'SIGKILL')
  } catch {
    child.kill('SIGKILL') // the process group is gone, or never existed, so only the process is killed
  }
}
