/**
 * Lists the descendants of a process, from /proc.
 *
 * in   a process        out  the pids of its children, of their children, …; fork servers as sharedForks.ts says
 */
import { pids, processStat } from '../../cli/io/processes'
import { forkServersFor } from './sharedForks'

/** Pids of all descendants of a living process. */
export function descendantsOf(pid: number): number[] {
  const parents = new Map<number, number>()
  for (const one of pids()) {
    try {
      parents.set(one, processStat(one).parent)
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
