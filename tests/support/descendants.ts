/**
 * Lists the descendants of a process, from /proc.
 *
 * in   a process        out  the pids of its children, of their children, …; fork servers as sharedForks.ts says
 */
import { readdirSync, readFileSync } from 'node:fs'
import { forkServersFor } from './sharedForks'

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
  for (const parent of found) {
    for (const [child, of] of parents) if (of === parent) found.push(child)
    found.push(...forkServersFor(parent))
  }
  return found.slice(1)
}
