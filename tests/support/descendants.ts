/**
 * Lists the descendants of a process, from /proc.
 *
 * in   a process        out  the pids of its children, of their children, …
 * Invariant: a test file that imports this does not use the fork server that the test runner shares, whose forks would
 * be no descendants of the processes that ask for them.
 */
import { readdirSync, readFileSync } from 'node:fs'
import './ownForkServers'

/** Pids of all descendants of a living process. */
export function descendantsOf(pid: number): number[] {
  const parents = new Map<number, number>()
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue
    try {
      const stat = readFileSync(`/proc/${name}/stat`, 'utf8')
      parents.set(Number(name), Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]))
    } catch {
      // The process ended between the listing and the reading.
    }
  }
  const found = [pid]
  for (const parent of found) for (const [child, of] of parents) if (of === parent) found.push(child)
  return found.slice(1)
}
